package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumed is the output of the read command. Bytes counts keys and values.
type consumed struct {
	usage
	Records int   `json:"records"`
	Bytes   int64 `json:"bytes"`
}

// read reads a topic from its start until it has as many records as asked for.
func read(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	count := flags.Int("records", 1, "the number of records to read")
	most := flags.Duration("most", 20*time.Minute, "the time after which reading fails")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	client, err := target.client(
		kgo.ConsumeTopics(target.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), *most)
	defer cancel()
	found := &consumed{}
	meter := target.meter()
	for found.Records < *count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", found.Records, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found.Records++
			found.Bytes += int64(len(record.Key) + len(record.Value))
		})
	}
	found.usage = meter.read()
	return found, nil
}
