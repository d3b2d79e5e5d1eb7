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

const (
	stampBytes = 8
	// tick is the time between two looks at the records that are due.
	tick = time.Millisecond
)

// flowed is the output of the live command. The time and the CPU are those of the records that were measured.
type flowed struct {
	usage
	Records  int       `json:"records"`
	Produce  quantiles `json:"produce"`
	EndToEnd quantiles `json:"end_to_end"`
}

// live sends records at a steady rate to all partitions in turn, and measures the time to their acknowledgement by all
// in-sync replicas, and to their arrival at consumers, among which the partitions are divided.
//
// Each record has the time at which it was due, so that a stall of the producer counts as well (coordinated omission).
// The records of the first second, and those that are sent until all consumers have records of all their partitions, are
// not measured. With keys, records have one of so many keys; without consumers, only acknowledgements are measured.
func live(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	rate := flags.Float64("rate", 1000, "records per second")
	seconds := flags.Float64("seconds", 10, "the measured time")
	size := flags.Int("bytes", 100, "the size of a record's value, at least 8")
	consumers := flags.Int("consumers", 1, "the number of consumers, each a client with its own connections")
	keys := flags.Int("keys", 0, "the number of keys; 0: no keys")
	untilInputEnds := flags.Bool("until-input-ends", false, "print a line when measuring begins, end with the input")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	leaders, err := target.leaders()
	if err != nil {
		return nil, err
	}
	flow := &flow{
		target:     target,
		partitions: len(leaders),
		keys:       *keys,
		value:      randomBytes(max(*size, stampBytes)),
		acks:       newOutcome(),
		seen:       make(map[int32]bool),
		started:    func() {},
	}
	if *untilInputEnds {
		flow.ended = inputEnd()
		flow.started = func() { fmt.Println(`{"measuring": true}`) }
	}
	life := time.Duration(*seconds*float64(time.Second)) + 4*timeout
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	if flow.producer, err = target.client(
		kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(timeout),
	); err != nil {
		return nil, err
	}
	defer flow.producer.Close()
	var running sync.WaitGroup
	stop, end := context.WithCancel(ctx)
	defer running.Wait()
	defer end()
	for i := range *consumers {
		if err := flow.consume(stop, &running, i, *consumers); err != nil {
			return nil, err
		}
	}
	if *consumers > 0 {
		if err := flow.prime(ctx); err != nil {
			return nil, err
		}
	}
	return flow.measure(ctx, *rate, *seconds, *consumers > 0)
}

// flow is one run of live.
type flow struct {
	target     *target
	partitions int
	keys       int
	value      []byte
	producer   *kgo.Client
	acks       *outcome
	// started is called when measuring begins.
	started func()
	// ended ends the measured time early; it may be nil.
	ended <-chan struct{}

	lock sync.Mutex
	// seen are the partitions of which a consumer has a record.
	seen map[int32]bool
	// from and until bound the times of the measured records.
	from, until time.Time
	arrivals    []time.Duration
	failed      error
}

// consume starts a consumer of each count-th partition.
func (f *flow) consume(ctx context.Context, running *sync.WaitGroup, index, count int) error {
	offsets := make(map[int32]kgo.Offset)
	for partition := index; partition < f.partitions; partition += count {
		offsets[int32(partition)] = kgo.NewOffset().AtEnd()
	}
	client, err := f.target.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{f.target.topic: offsets}),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	running.Add(1)
	go func() {
		defer running.Done()
		defer client.Close()
		for {
			fetches := client.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			f.arrive(fetches, time.Now())
		}
	}()
	return nil
}

func (f *flow) arrive(fetches kgo.Fetches, now time.Time) {
	f.lock.Lock()
	defer f.lock.Unlock()
	fetches.EachError(func(topic string, partition int32, err error) {
		if f.failed == nil {
			f.failed = fmt.Errorf("fetch of %s-%d: %w", topic, partition, err)
		}
	})
	fetches.EachRecord(func(record *kgo.Record) {
		f.seen[record.Partition] = true
		due := time.Unix(0, int64(binary.BigEndian.Uint64(record.Value)))
		if !f.from.IsZero() && !due.Before(f.from) && due.Before(f.until) {
			f.arrivals = append(f.arrivals, now.Sub(due))
		}
	})
}

// prime sends records until the consumers have some of every partition.
func (f *flow) prime(ctx context.Context) error {
	deadline := time.Now().Add(2 * timeout)
	for {
		missing := f.unseen()
		if len(missing) == 0 {
			return f.err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no record of partition %d and %d others has arrived", missing[0], len(missing)-1)
		}
		for _, partition := range missing {
			f.send(ctx, partition, time.Now())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (f *flow) unseen() []int32 {
	f.lock.Lock()
	defer f.lock.Unlock()
	var missing []int32
	for partition := range int32(f.partitions) {
		if !f.seen[partition] {
			missing = append(missing, partition)
		}
	}
	return missing
}

func (f *flow) send(ctx context.Context, partition int32, due time.Time) {
	value := append([]byte(nil), f.value...)
	binary.BigEndian.PutUint64(value, uint64(due.UnixNano()))
	record := &kgo.Record{Topic: f.target.topic, Partition: partition, Value: value}
	if f.keys > 0 {
		record.Key = fmt.Append(nil, rand.IntN(f.keys))
	}
	f.acks.send(ctx, f.producer, record, due)
}

// measure sends records for a second that does not count, and then for the given seconds.
func (f *flow) measure(ctx context.Context, rate, seconds float64, hasConsumers bool) (*flowed, error) {
	f.pace(ctx, time.Now(), rate, time.Second)
	length := time.Duration(seconds * float64(time.Second))
	f.acks.reset()
	meter := f.target.meter()
	f.lock.Lock()
	f.from, f.until = meter.started, meter.started.Add(length)
	f.lock.Unlock()
	f.started()
	sent := f.pace(ctx, meter.started, rate, length)
	if err := f.producer.Flush(ctx); err != nil {
		return nil, err
	}
	if hasConsumers {
		if err := f.wait(ctx, sent); err != nil {
			return nil, err
		}
	}
	used := meter.read()
	if err := f.err(); err != nil {
		return nil, err
	}
	return &flowed{used, sent, quantilesOf(f.acks.latencies), quantilesOf(f.arrivals)}, nil
}

// pace sends the records of a time as they become due, and returns how many it has sent.
func (f *flow) pace(ctx context.Context, started time.Time, rate float64, length time.Duration) int {
	interval := time.Duration(float64(time.Second) / rate)
	count := int(length / interval)
	sent := 0
	for sent < count {
		for now := time.Now(); sent < count && !started.Add(time.Duration(sent)*interval).After(now); sent++ {
			f.send(ctx, int32(sent%f.partitions), started.Add(time.Duration(sent)*interval))
		}
		select {
		case <-f.ended:
			return sent
		case <-time.After(tick):
		}
	}
	return sent
}

// wait waits until all measured records have arrived.
func (f *flow) wait(ctx context.Context, sent int) error {
	deadline := time.Now().Add(timeout)
	for {
		f.lock.Lock()
		arrived := len(f.arrivals)
		f.lock.Unlock()
		if arrived >= sent || f.err() != nil {
			return f.err()
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%d of %d records have arrived", arrived, sent)
		}
		time.Sleep(tick)
	}
}

func (f *flow) err() error {
	f.lock.Lock()
	failed := f.failed
	f.lock.Unlock()
	if failed != nil {
		return failed
	}
	return f.acks.err()
}
