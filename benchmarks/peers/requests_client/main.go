// Command requests-client sends small produce requests from many connections, each of which waits for the answer
// before it sends the next one. It prints the time, the requests and percentiles of the latency as one JSON object.
//
// Every client has a connection of its own to the leader of its partition, and repeats the same encoded request, so that
// the client's own work is small next to the broker's. With acks=0 there are no answers: each client ends with one
// request of acks=1, whose answer says that the broker has processed all before it.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	produceVersion = 7
	timeout        = 60 * time.Second
)

// result is the output, with times in seconds.
type result struct {
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
	P50      float64 `json:"p50_s"`
	P99      float64 `json:"p99_s"`
	P999     float64 `json:"p999_s"`
}

func main() {
	servers := flag.String("servers", "localhost:9092", "bootstrap servers")
	topic := flag.String("topic", "", "an existing topic")
	clients := flag.Int("clients", 100, "the number of connections")
	acks := flag.Int("acks", -1, "-1, 0 or 1")
	requests := flag.Int("requests", 20000, "the number of requests of all clients together")
	size := flag.Int("bytes", 100, "the size of a record's value")
	flag.Parse()
	found, err := run(strings.Split(*servers, ","), *topic, *clients, int16(*acks), *requests, *size)
	if err != nil {
		fmt.Fprintln(os.Stderr, "requests-client:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}

func run(servers []string, topic string, clients int, acks int16, requests, size int) (*result, error) {
	leaders, err := leadersOf(servers, topic)
	if err != nil {
		return nil, err
	}
	each := max(1, requests/clients)
	all := make([]*client, clients)
	for i := range all {
		partition := int32(i % len(leaders))
		if all[i], err = connect(leaders[partition], topic, partition, acks, each, size); err != nil {
			return nil, err
		}
		defer all[i].connection.Close()
	}
	errs := make([]error, clients)
	var group sync.WaitGroup
	started := time.Now()
	for i, c := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			errs[i] = c.send()
		}()
	}
	group.Wait()
	seconds := time.Since(started).Seconds()
	var latencies []time.Duration
	for i, c := range all {
		if errs[i] != nil {
			return nil, fmt.Errorf("client %d: %w", i, errs[i])
		}
		latencies = append(latencies, c.latencies...)
	}
	slices.Sort(latencies)
	return &result{seconds, each * clients, at(latencies, 0.5), at(latencies, 0.99), at(latencies, 0.999)}, nil
}

// at returns a quantile of sorted latencies in seconds, 0 without any.
func at(sorted []time.Duration, quantile float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(quantile*float64(len(sorted))))].Seconds()
}

// leadersOf returns the address of the leader of each partition.
func leadersOf(servers []string, topic string) (map[int32]string, error) {
	found, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, found)
	if err != nil {
		return nil, err
	}
	addresses := make(map[int32]string)
	for _, broker := range answer.Brokers {
		addresses[broker.NodeID] = net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port))
	}
	leaders := make(map[int32]string)
	for _, partition := range answer.Topics[0].Partitions {
		address, known := addresses[partition.Leader]
		if !known {
			return nil, fmt.Errorf("partition %d of %s has no leader", partition.Partition, topic)
		}
		leaders[partition.Partition] = address
	}
	if len(leaders) == 0 {
		return nil, fmt.Errorf("there is no topic %s", topic)
	}
	return leaders, nil
}

type client struct {
	connection   net.Conn
	reader       *bufio.Reader
	request      []byte
	last         []byte
	hasAnswers   bool
	count        int
	latencies    []time.Duration
	responseBody []byte
}

// connect opens a connection and sends one request, so that what is measured begins on a warm connection.
func connect(address, topic string, partition int32, acks int16, count, size int) (*client, error) {
	connection, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, err
	}
	made := &client{
		connection: connection,
		reader:     bufio.NewReader(connection),
		request:    frame(topic, partition, acks, size),
		last:       frame(topic, partition, 1, size),
		hasAnswers: acks != 0,
		count:      count,
		latencies:  make([]time.Duration, 0, count),
	}
	return made, made.exchange(made.last)
}

func (c *client) send() error {
	if err := c.connection.SetDeadline(time.Now().Add(5 * timeout)); err != nil {
		return err
	}
	for range c.count {
		started := time.Now()
		if !c.hasAnswers {
			if _, err := c.connection.Write(c.request); err != nil {
				return err
			}
			continue
		}
		if err := c.exchange(c.request); err != nil {
			return err
		}
		c.latencies = append(c.latencies, time.Since(started))
	}
	if c.hasAnswers {
		return nil
	}
	return c.exchange(c.last)
}

// exchange sends a request and reads its answer, which must report success.
func (c *client) exchange(request []byte) error {
	if _, err := c.connection.Write(request); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if cap(c.responseBody) < size {
		c.responseBody = make([]byte, size)
	}
	body := c.responseBody[:size]
	if _, err := io.ReadFull(c.reader, body); err != nil {
		return err
	}
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = produceVersion
	if err := answer.ReadFrom(body[4:]); err != nil {
		return err
	}
	if code := answer.Topics[0].Partitions[0].ErrorCode; code != 0 {
		return fmt.Errorf("the broker answers with error %d", code)
	}
	return nil
}

// frame returns an encoded Produce request of one record, with its length.
func frame(topic string, partition int32, acks int16, size int) []byte {
	request := kmsg.NewPtrProduceRequest()
	request.Version = produceVersion
	request.Acks = acks
	request.TimeoutMillis = int32(timeout.Milliseconds())
	ofPartition := kmsg.NewProduceRequestTopicPartition()
	ofPartition.Partition = partition
	ofPartition.Records = batch(make([]byte, size))
	ofTopic := kmsg.NewProduceRequestTopic()
	ofTopic.Topic = topic
	ofTopic.Partitions = append(ofTopic.Partitions, ofPartition)
	request.Topics = append(request.Topics, ofTopic)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("requests-client")).AppendRequest(nil, request, 1)
}

// batch returns a record batch with one record.
func batch(value []byte) []byte {
	record := kmsg.NewRecord()
	record.Value = value
	// The length counts the bytes after it; the length of zero itself has one byte.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	made := kmsg.NewRecordBatch()
	made.PartitionLeaderEpoch = -1
	made.Magic = 2
	made.FirstTimestamp, made.MaxTimestamp = now, now
	made.ProducerID, made.ProducerEpoch, made.FirstSequence = -1, -1, -1
	made.NumRecords = 1
	made.Records = record.AppendTo(nil)
	encoded := made.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[8:], uint32(len(encoded)-12))
	binary.BigEndian.PutUint32(encoded[17:], crc32.Checksum(encoded[21:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded
}
