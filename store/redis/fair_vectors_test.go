package redis_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

// TestVectorsOfShares runs the vectors of StepShared through the scripts: all fields of
// every decision.
func TestVectorsOfShares(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "algorithm", "testdata", "vectors", "fair.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Name      string       `json:"name"`
			Limit     *vectorLimit `json:"limit"`
			HorizonUS int64        `json:"horizon_us"`
			Steps     []struct {
				AtUS       int64      `json:"at_us"`
				Kind       string     `json:"kind"`
				Cost       int64      `json:"cost"`
				DurationUS int64      `json:"duration_us"`
				Of         string     `json:"of"`
				Weight     int64      `json:"weight"`
				Want       vectorWant `json:"want"`
			} `json:"steps"`
		} `json:"vectors"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		db := open(t, redis.Options{Addresses: []string{server.Addr}, CallerTime: true, Timeout: patient})
		for _, v := range file.Vectors {
			limit := v.Limit.limit(t)
			fair, err := store.NewFair(limit.Rule(), time.Duration(v.HorizonUS)*time.Microsecond)
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range v.Steps {
				d, err := store.Execute(context.Background(), db, store.Op{
					Key: v.Name, Scope: "fair", Rule: limit.Rule(), Cost: step.Cost, At: step.AtUS, Kind: kindOf(t, step.Kind),
					Duration: time.Duration(step.DurationUS) * time.Microsecond,
					Share:    &store.Share{Fair: fair, Of: step.Of, Weight: step.Weight},
				})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(step.Want, wantOf(d, 0)); diff != "" {
					t.Fatalf("%s, step %d (-want +got):\n%s", v.Name, i, diff)
				}
			}
		}
	})
}
