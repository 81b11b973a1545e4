package main

import (
	"context"
	"io"
	"time"

	"music/integration/evaluate/experiment"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/paper"
	"music/integration/evaluate/safety"
	"music/integration/evaluate/section"
)

// systems are those that the experiments know by name. One that cannot be had on this machine stays in: its rows say so.
func systems() []experiment.System {
	return []experiment.System{
		published(experiment.MUSIC, paper.MUSIC),
		published(experiment.MSCP, paper.MSCP),
		published(experiment.CassaEV, paper.CassaEV),
		product(experiment.Ours, ours.Lock),
		product(experiment.ForUpdate, ours.ForUpdate),
		product(experiment.Auto, ours.Auto),
		product(experiment.Strict, ours.Strict),
	}
}

// How long a driver waits for an answer, and for a lock in one statement: longer than one round of a contended key takes.
const patience, wait = 30 * time.Second, 5 * time.Second

// published is a system of the MUSIC paper.
func published(name string, v paper.Variant) experiment.System {
	return experiment.System{Name: name, Exclusive: v != paper.CassaEV, Open: func(at experiment.Place) (section.Client, error) {
		c, err := paper.New(paper.Options{Hosts: []string{at.Node}, Keyspace: at.Keyspace, Variant: v, Timeout: patience})
		if err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// product is a mode of the product.
func product(name string, m ours.Mode) experiment.System {
	return experiment.System{Name: name, Exclusive: m != ours.Auto, Open: func(at experiment.Place) (section.Client, error) {
		return ours.New(ours.Options{Hosts: []string{at.Proxy}, Keyspace: at.Keyspace, Mode: m, Timeout: patience, Wait: wait})
	}}
}

// part is something that the command runs beside the figures, with nodes of its own. It writes its pages into a directory, and
// returns the names of those that belong into the index.
type part struct {
	name string
	run  func(ctx context.Context, out string, full bool, log io.Writer) error
}

// parts are all of them.
func parts() []part {
	return []part{{"safety", func(ctx context.Context, out string, full bool, log io.Writer) error {
		o := safety.Options{Tries: 1, Out: out, Log: log}
		if full {
			o.Tries = 5
		}
		return safety.Run(ctx, o)
	}}}
}
