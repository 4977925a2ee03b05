package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/lab"
	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/store/memory"
)

// Lab measures how exact the algorithms are.
type Lab struct {
	// Short makes less traffic.
	Short bool
	// Logs, if it has paths, are real traffic besides.
	Logs AccessLogs
	// Told, if not nil, is told of each profile before it is run.
	Told func(profile string)
}

// Write runs everything and writes the results as Markdown.
func (l *Lab) Write(ctx context.Context, w io.Writer) error {
	scale := lab.Full
	if l.Short {
		scale = lab.Small
	}
	profiles := lab.Profiles(scale)
	if len(l.Logs.Paths) > 0 {
		reading, err := l.Logs.reading()
		if err != nil {
			return err
		}
		p := lab.Profile{Name: "A real log, by client address"}
		keys := map[string]int{}
		err = simulate.Visit(ctx, reading, func(at int64, client string) {
			key, ok := keys[client]
			if !ok {
				key = len(keys)
				keys[client] = key
			}
			p.Requests = append(p.Requests, lab.Request{At: at, Key: key})
		})
		if err != nil {
			return logErrors(err)
		}
		p.Keys = len(keys)
		profiles = append(profiles, p)
	}
	for _, p := range profiles {
		if l.Told != nil {
			l.Told(p.Name)
		}
		var results []lab.Result
		for _, s := range lab.Subjects(100, time.Minute) {
			r, err := lab.Run(ctx, s, p, func() lab.Store {
				return labStore{memory.New(memory.MaxKeys(max(p.Keys, 1)), memory.MaxBytes(1<<30))}
			})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.Name, s.Name, err)
			}
			results = append(results, r)
		}
		if err := lab.WriteTable(w, p, slices.Clip(results)); err != nil {
			return err
		}
	}
	return nil
}

// labStore is the embedded store in the lab.
type labStore struct{ *memory.Store }

// Usage implements lab.Store.
func (s labStore) Usage() (keys, bytes int64) {
	stats := s.Stats()
	return stats.Keys, stats.Bytes
}
