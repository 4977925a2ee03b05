package simulate_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/rules/rulefile"
)

func side(t testing.TB, src string) simulate.Side {
	t.Helper()
	rs, problems := rulefile.Parse(rulefile.Source{Name: "rules.yaml", Data: []byte(src)})
	if rs == nil {
		t.Fatal(problems)
	}
	return simulate.Side{Rules: rs, Domain: rs.Domains()[0]}
}

func options(t testing.TB, src string, logs ...simulate.Log) simulate.Options {
	t.Helper()
	clients, err := client.New(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Options{
		Side: side(t, src), Top: 5,
		Reading: simulate.Reading{Logs: logs, Clients: clients, Reorder: 10 * time.Second},
	}
}
