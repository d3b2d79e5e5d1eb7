package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const produceVersion = 7

// served is the output of the requests command.
type served struct {
	usage
	Requests int       `json:"requests"`
	Latency  quantiles `json:"latency"`
}

// requests sends small produce requests from many connections, each of which waits for the answer before it sends the
// next one.
//
// Every client has a connection of its own to the leader of its partition, and repeats the same encoded request, so that
// the client's own work is small next to the broker's. With acks=0 there are no answers: each client ends with one
// request of acks=1, whose answer says that the broker has processed all before it.
func requests(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	clients := flags.Int("clients", 100, "the number of connections")
	acks := flags.Int("acks", -1, "-1, 0 or 1")
	count := flags.Int("requests", 20000, "the number of requests of all clients together")
	size := flags.Int("bytes", 100, "the size of a record's value")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	leaders, err := target.leaders()
	if err != nil {
		return nil, err
	}
	each := max(1, *count / *clients)
	all := make([]*client, *clients)
	for i := range all {
		partition := int32(i % len(leaders))
		if all[i], err = connect(leaders[partition], target.topic, partition, int16(*acks), each, *size); err != nil {
			return nil, err
		}
		defer all[i].connection.Close()
	}
	errs := make([]error, len(all))
	var group sync.WaitGroup
	meter := target.meter()
	for i, c := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			errs[i] = c.send()
		}()
	}
	group.Wait()
	used := meter.read()
	var latencies []time.Duration
	for i, c := range all {
		if errs[i] != nil {
			return nil, fmt.Errorf("client %d: %w", i, errs[i])
		}
		latencies = append(latencies, c.latencies...)
	}
	return &served{used, each * len(all), quantilesOf(latencies)}, nil
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
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, request, 1)
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
