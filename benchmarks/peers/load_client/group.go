package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const stablePoll = time.Millisecond

// churned is the output of the group command. A change is a member that leaves or joins, up to the time at which the
// members share all partitions again.
type churned struct {
	usage
	Changes int       `json:"changes"`
	Start   float64   `json:"start_s"`
	Leave   quantiles `json:"leave"`
	Join    quantiles `json:"join"`
}

// group starts the members of a group, and lets one leave and a new one join in turn, each as soon as the members share
// all partitions evenly after the change before.
func group(target *target, flags *flag.FlagSet, arguments []string) (any, error) {
	name := flags.String("group", "churn", "the name of the group")
	count := flags.Int("members", 20, "the number of members")
	protocol := flags.String("protocol", "range", "range or cooperative-sticky, of the classic protocol, or consumer")
	seconds := flags.Float64("seconds", 10, "the time after which no change begins")
	pause := flags.Duration("pause", 0, "the time between two changes")
	heartbeat := flags.Duration("heartbeat", 100*time.Millisecond, "the heartbeat interval of the classic protocol")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	leaders, err := target.leaders()
	if err != nil {
		return nil, err
	}
	options, err := balancing(*protocol)
	if err != nil {
		return nil, err
	}
	options = append(
		options,
		kgo.ConsumerGroup(*name),
		kgo.ConsumeTopics(target.topic),
		kgo.HeartbeatInterval(*heartbeat),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	churn := &churn{target: target, options: options, partitions: len(leaders), owners: make(map[int]map[int32]bool)}
	defer churn.close()
	return churn.run(*count, *pause, time.Duration(*seconds*float64(time.Second)))
}

func balancing(protocol string) ([]kgo.Opt, error) {
	switch protocol {
	case "range":
		return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}, nil
	case "cooperative-sticky":
		return []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}, nil
	case "consumer":
		return []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}, nil
	}
	return nil, fmt.Errorf("there is no protocol %s", protocol)
}

// churn is one run of group.
type churn struct {
	target     *target
	options    []kgo.Opt
	partitions int
	members    []*member
	started    int
	polling    sync.WaitGroup

	lock   sync.Mutex
	owners map[int]map[int32]bool
	failed error
}

type member struct {
	id     int
	client *kgo.Client
	stop   context.CancelFunc
}

func (c *churn) run(count int, pause, length time.Duration) (*churned, error) {
	begun := time.Now()
	for range count {
		if err := c.join(); err != nil {
			return nil, err
		}
	}
	if err := c.wait(); err != nil {
		return nil, err
	}
	start := time.Since(begun)
	var leaves, joins []time.Duration
	meter := c.target.meter()
	for time.Since(meter.started) < length {
		taken, err := c.timed(func() error { c.leave(); return nil })
		if err != nil {
			return nil, fmt.Errorf("after %d changes, a member leaves: %w", len(leaves)+len(joins), err)
		}
		leaves = append(leaves, taken)
		time.Sleep(pause)
		if taken, err = c.timed(c.join); err != nil {
			return nil, fmt.Errorf("after %d changes, a member joins: %w", len(leaves)+len(joins), err)
		}
		joins = append(joins, taken)
		time.Sleep(pause)
	}
	used := meter.read()
	changes := len(leaves) + len(joins)
	return &churned{used, changes, start.Seconds(), quantilesOf(leaves), quantilesOf(joins)}, nil
}

func (c *churn) timed(change func() error) (time.Duration, error) {
	started := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	err := c.wait()
	return time.Since(started), err
}

// join starts a member.
func (c *churn) join() error {
	id := c.started
	c.started++
	c.lock.Lock()
	c.owners[id] = make(map[int32]bool)
	c.lock.Unlock()
	gain := func(_ context.Context, _ *kgo.Client, given map[string][]int32) { c.own(id, given, true) }
	lose := func(_ context.Context, _ *kgo.Client, taken map[string][]int32) { c.own(id, taken, false) }
	client, err := c.target.client(append(
		[]kgo.Opt{kgo.OnPartitionsAssigned(gain), kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose)},
		c.options...,
	)...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.members = append(c.members, &member{id, client, stop})
	c.polling.Add(1)
	go func() {
		defer c.polling.Done()
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachError(func(topic string, partition int32, err error) {
				if ctx.Err() == nil {
					c.fail(fmt.Errorf("member %d, %s-%d: %w", id, topic, partition, err))
				}
			})
		}
	}()
	return nil
}

// leave ends the oldest member.
func (c *churn) leave() {
	leaving := c.members[0]
	c.members = c.members[1:]
	c.end(leaving)
	c.lock.Lock()
	delete(c.owners, leaving.id)
	c.lock.Unlock()
}

func (c *churn) end(leaving *member) {
	leaving.stop()
	leaving.client.Close()
}

func (c *churn) close() {
	for _, left := range c.members {
		c.end(left)
	}
	c.polling.Wait()
}

func (c *churn) own(id int, partitions map[string][]int32, isGain bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, partition := range partitions[c.target.topic] {
		if owned := c.owners[id]; owned != nil && isGain {
			owned[partition] = true
		} else if owned != nil {
			delete(owned, partition)
		}
	}
}

func (c *churn) fail(err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// wait waits until each partition has one owner, and no member has two partitions more than another.
func (c *churn) wait() error {
	deadline := time.Now().Add(timeout)
	for {
		c.lock.Lock()
		isStable, failed := c.isStable(), c.failed
		var owned []int
		for _, id := range slices.Sorted(maps.Keys(c.owners)) {
			owned = append(owned, len(c.owners[id]))
		}
		c.lock.Unlock()
		if failed != nil || isStable {
			return failed
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the members have %v of %d partitions", owned, c.partitions)
		}
		time.Sleep(stablePoll)
	}
}

func (c *churn) isStable() bool {
	least, most := c.partitions, 0
	owners := make(map[int32]int)
	for _, owned := range c.owners {
		least, most = min(least, len(owned)), max(most, len(owned))
		for partition := range owned {
			owners[partition]++
		}
	}
	for _, count := range owners {
		if count > 1 {
			return false
		}
	}
	return len(owners) == c.partitions && most-least <= 1
}
