package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produced is the output of the produce command.
type produced struct {
	usage
	Records int       `json:"records"`
	Latency quantiles `json:"latency"`
}

// produce sends records with random keys, hence to all partitions, as fast as the buffer of the client accepts them, for
// a number of seconds or until there are as many as asked for. All in-sync replicas acknowledge them.
func produce(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	seconds := flags.Float64("seconds", 10, "the time after which no record is sent")
	most := flags.Int("records", 0, "the most records to send; 0: no limit")
	size := flags.Int("bytes", 100, "the size of a record's value")
	linger := flags.Duration("linger", 5*time.Millisecond, "the linger time of a batch")
	sameKey := flags.Int("same-key", 1, "the number of records in a row with the same key, hence to the same partition")
	buffered := flags.Int("buffered", 10_000, "the most records that are not acknowledged yet")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	client, err := target.client(
		kgo.ProducerLinger(*linger),
		kgo.MaxBufferedRecords(*buffered),
		kgo.RecordDeliveryTimeout(2*timeout),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout+time.Duration(*seconds*float64(time.Second)))
	defer cancel()
	// The metadata, the connections and the producer's id are there before the time is measured.
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: target.topic, Value: []byte("connected")}).FirstErr(); err != nil {
		return nil, err
	}
	outcome := newOutcome()
	value := randomBytes(*size)
	var key []byte
	sent := 0
	meter := target.meter()
	end := meter.started.Add(time.Duration(*seconds * float64(time.Second)))
	for (*most == 0 || sent < *most) && time.Now().Before(end) && outcome.err() == nil {
		if sent%*sameKey == 0 {
			key = binary.BigEndian.AppendUint64(nil, rand.Uint64())
		}
		outcome.send(ctx, client, &kgo.Record{Topic: target.topic, Key: key, Value: value}, time.Now())
		sent++
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	used := meter.read()
	if err := outcome.err(); err != nil {
		return nil, err
	}
	return &produced{used, sent, quantilesOf(outcome.latencies)}, nil
}

// outcome collects the latencies of sent records, and the first error. The promises of a client run one after another,
// but those of several clients do not.
type outcome struct {
	lock      sync.Mutex
	latencies []time.Duration
	first     error
}

func newOutcome() *outcome {
	return &outcome{latencies: make([]time.Duration, 0, 1<<16)}
}

// send produces a record, and notes the time from when it was due to its acknowledgement.
func (o *outcome) send(ctx context.Context, client *kgo.Client, record *kgo.Record, due time.Time) {
	client.Produce(ctx, record, func(record *kgo.Record, err error) {
		o.lock.Lock()
		defer o.lock.Unlock()
		if err != nil && o.first == nil {
			o.first = fmt.Errorf("%s-%d: %w", record.Topic, record.Partition, err)
		}
		o.latencies = append(o.latencies, time.Since(due))
	})
}

func (o *outcome) err() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.first
}

// reset forgets the latencies so far.
func (o *outcome) reset() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.latencies = o.latencies[:0]
}

// randomBytes returns a random value.
func randomBytes(size int) []byte {
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.UintN(256))
	}
	return value
}
