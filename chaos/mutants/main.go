// Command mutants checks whether the tests of a package notice changes of its code: + to -, <
// to <=, == to != and so on, one change at a time.
//
//	go run ./mutants ../algorithm -- -runs 12
//
// All changes are compiled into one test binary, and an environment variable chooses one of
// them. So a change costs a test run up to the first failure, and no build.
//
// A change that survives is an error unless testdata/mutants.txt of the package lists it with
// the reason why it has no effect.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

func main() {
	least := flag.Float64("least", 97, "percentage of changes that must be noticed or explained")
	only := flag.String("only", "", "try only changes whose description contains this text")
	every := flag.Int("every", 1, "try only every n-th change")
	workers := flag.Int("workers", 2, "number of concurrent runs")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutants [flags] FOLDER [-- TEST FLAGS]")
		os.Exit(2)
	}
	r := run{dir: flag.Arg(0), only: *only, every: *every, workers: *workers}
	if args := flag.Args()[1:]; len(args) > 0 && args[0] == "--" {
		r.args = args[1:]
	}
	share, err := r.do()
	if err == nil && share < *least {
		err = fmt.Errorf("%.1f%% noticed or explained, want %.1f%%", share, *least)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run is a package under test.
type run struct {
	dir, only      string
	every, workers int
	args           []string
	binary         string
	seconds        int // limit of processor time for a run
}

// do tries every change and returns the share that is noticed or explained.
func (r *run) do() (float64, error) {
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	all, err := r.build(temp)
	if err != nil {
		return 0, err
	}
	cost, err := r.test(0, 600)
	if err != nil {
		return 0, fmt.Errorf("the tests fail without any change: %w", err)
	}
	r.seconds = 10 + 10*int(cost)
	chosen := slices.DeleteFunc(all, func(m *mutant) bool {
		return !strings.Contains(m.String(), r.only) || m.id%r.every != 0
	})
	r.try(chosen)
	return r.report(chosen)
}

// try runs the tests against each change.
func (r *run) try(all []*mutant) {
	busy := make(chan struct{}, r.workers)
	var workers sync.WaitGroup
	for _, m := range all {
		busy <- struct{}{}
		workers.Go(func() {
			_, err := r.test(m.id, r.seconds)
			m.lives = err == nil
			<-busy
		})
	}
	workers.Wait()
}

// report prints the surviving changes, and returns the share that is noticed or explained.
func (r *run) report(all []*mutant) (float64, error) {
	explained, err := r.explained()
	if err != nil {
		return 0, err
	}
	noticed, known := 0, 0
	for _, m := range all {
		switch name := m.String(); {
		case !m.lives:
			noticed++
			if explained[name] {
				fmt.Printf("noticed, although mutants.txt says it changes nothing: %s\n", name)
			}
		case explained[name]:
			known++
		default:
			fmt.Printf("lives: %s:%d %s\n", filepath.Join(r.dir, m.file), m.line, name)
		}
	}
	share := 100 * float64(noticed+known) / float64(max(len(all), 1))
	fmt.Printf("%s: %d changes, %d noticed (%.1f%%), %d explained, %d live\n",
		r.dir, len(all), noticed, 100*float64(noticed)/float64(max(len(all), 1)), known, len(all)-noticed-known)
	return share, nil
}

// explained reads the changes that are known to have no effect: one per line, as they are
// printed, with the reason indented below.
func (r *run) explained() (map[string]bool, error) {
	list := make(map[string]bool)
	text, err := os.ReadFile(filepath.Join(r.dir, "testdata", "mutants.txt"))
	if errors.Is(err, os.ErrNotExist) {
		return list, nil
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimLeft(line, " \t#\n") == line && line != "\n" {
			list[strings.TrimSpace(line)] = true
		}
	}
	return list, err
}

// build compiles the tests with all changes.
func (r *run) build(temp string) ([]*mutant, error) {
	p, err := load(r.dir)
	if err != nil {
		return nil, err
	}
	overlay := map[string]string{}
	var all []*mutant
	for i, name := range p.names {
		text, found := p.rewrite(i, len(all))
		all = append(all, found...)
		file := filepath.Join(temp, filepath.Base(name))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		overlay[name] = file
	}
	file := filepath.Join(temp, "zz_mutant.go")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(switchboard, p.files[0].Name.Name)), 0o600); err != nil {
		return nil, err
	}
	overlay[filepath.Join(filepath.Dir(p.names[0]), "zz_mutant.go")] = file
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(temp, "overlay.json"), text, 0o600); err != nil {
		return nil, err
	}
	r.binary = filepath.Join(temp, "mutants.test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(temp, "overlay.json"), "-o", r.binary, ".")
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return all, nil
}

// switchboard is the file that selects the change.
const switchboard = `package %s

import (
	"os"
	"strconv"
)

var mutant = func() int {
	n, _ := strconv.Atoi(os.Getenv("MUTANT"))
	return n
}()
`

// test runs the tests with one change, and returns the seconds of processor time used. A run
// that exceeds its limit has failed.
func (r *run) test(id, seconds int) (float64, error) {
	args := append([]string{"-c", `ulimit -t "$0" && exec "$@"`, strconv.Itoa(seconds), r.binary, "-test.failfast", "-test.short"}, r.args...)
	cmd := exec.Command("sh", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(id), "GOMAXPROCS=2")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out.String())
	}
	return cmd.ProcessState.UserTime().Seconds(), err
}
