package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/replay/simulate"
)

// logFlags are the flags of commands that read access logs.
type logFlags struct {
	offline.AccessLogs
	quiet bool
}

// defaultReorder is how far out of order lines may be: longer than most requests
// take.
const defaultReorder = 10 * time.Second

func (f *logFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Format, "format", "", "format of the logs: a name, the text of an nginx log_format, Apache LogFormat\n"+
		"or Envoy format, or the path of an nginx.conf (default: detected)")
	flags.StringSliceVar(&f.Map, "map", nil, "keys of JSON lines by attribute, such as client_ip=ip,path=url,time=when")
	flags.StringVar(&f.Timezone, "timezone", "UTC", "time zone of times without one")
	flags.StringSliceVar(&f.TrustedProxies, "trusted-proxies", nil, "addresses and networks whose X-Forwarded-For is trusted, if it is logged")
	flags.DurationVar(&f.Reorder, "reorder", defaultReorder, "how far out of order lines may be")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress and no notes on the logs, only problems")
	_ = cmd.RegisterFlagCompletionFunc("format", words(accesslog.Names()...)) // fails only if registered twice
}

// begin makes f report logs and progress; the caller clears what it returns.
func (f *logFlags) begin(s streams, paths []string) *logProgress {
	f.Paths, f.Stdin = paths, s.in
	p := &logProgress{overwritten: overwritten{paint: newPaint(s.err)}}
	if f.quiet {
		return p
	}
	f.Told = func(r simulate.LogReport) {
		p.clear()
		compressed, how := "", "as given"
		if r.Compression != "" {
			compressed = ", compressed with " + r.Compression
		}
		if r.Detected {
			how = "detected"
		}
		if r.Format == "empty" {
			p.printf("%s: empty\n", r.Name)
			return
		}
		p.printf("%s: format %s, %s%s\n", r.Name, r.Format, how, compressed)
	}
	if isTerminal(s.err) {
		p.began = time.Now()
		f.Progress = p.show
	}
	return p
}

// logProgress is a line on a terminal: how much has been read, how fast, and the
// time remaining.
type logProgress struct {
	overwritten
	began, last time.Time
}

func (p *logProgress) show(n simulate.Progress) {
	now := time.Now()
	if now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last = now
	p.write(progressLine(n, now.Sub(p.began)))
}

// progressLine formats the progress after a time.
func progressLine(n simulate.Progress, after time.Duration) string {
	rate := float64(n.Lines) / max(after.Seconds(), 1e-3)
	line := fmt.Sprintf("%s lines, %s/s", simulate.Thousands(n.Lines), simulate.Thousands(int64(rate)))
	if n.Total <= 0 || n.Bytes <= 0 {
		return line
	}
	share := min(float64(n.Bytes)/float64(n.Total), 1)
	const width = 24
	full := int(share * width)
	left := time.Duration(float64(after) * (1 - share) / share).Round(time.Second)
	return fmt.Sprintf("[%s%s] %3.0f%%  %s, %s left", strings.Repeat("=", full), strings.Repeat(" ", width-full), share*100, line, left)
}

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	logFlags
	reading                      flags
	rules, compare, domain, most string
	asJSON, asCSV                bool
	top, maxKeys                 int
}

func newSimulate(s streams) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --rules RULES LOG...",
		Short: "replay access logs against rules and report what would be refused",
		Long: `Simulate replays access logs with the same engine and store as serve, using the
times in the log as the clock. For every rule it reports how many requests would
have been refused, from which keys, and when.

It reads the logs of nginx and Apache (common, combined, any log_format or
LogFormat), Caddy, Envoy, Traefik and AWS ALB, and JSON lines, plain or compressed
with gzip, zstd or bzip2. - is standard input. Several logs are merged by time.
Lines that cannot be read are counted, and the first few are shown.

With --compare it also replays the logs against new rules and reports which
requests would newly be refused or newly be allowed, and by which rule.

The exit code is 0 on success, 1 if an input is wrong or more requests would
newly be refused than --max-new-refusals allows, and 2 if the command line is
wrong.`,
		Example: `  headgate simulate --rules rules/ /var/log/nginx/access.log*
  zcat access.log.gz | headgate simulate --rules rules/ --json -
  headgate simulate --rules rules/ --format /etc/nginx/nginx.conf:main access.log
  headgate simulate --rules old/ --compare new/ --max-new-refusals 0.1% access.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{"simulate needs an access log", "for example: headgate simulate --rules rules/ /var/log/nginx/access.log; - is standard input"}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rules, "rules", "", "rule files and folders, separated by commas (default: those of --config, or ./rules)")
	f.reading.ruleOptions(cmd)
	flags.StringVar(&f.compare, "compare", "", "rule files and folders to compare with --rules")
	flags.StringVar(&f.domain, "domain", "", "domain whose rules apply (default: the only one)")
	flags.StringVar(&f.most, "max-new-refusals", "", "with --compare: how many requests may newly be refused: a number, or a percentage such as 0.1%")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	flags.BoolVar(&f.asCSV, "csv", false, "print one line per rule and key as CSV")
	flags.IntVar(&f.top, "top", 5, "how many keys to list for each rule")
	flags.IntVar(&f.maxKeys, "max-keys", 0, "capacity of the store in keys (default 1,000,000, as for serve)")
	f.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("compare", ruleFiles) // fails only if registered twice
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, s, args) }
	return cmd
}

func (f *simulateFlags) run(cmd *cobra.Command, s streams, args []string) error {
	allowed, err := f.maxNewRefusals()
	switch {
	case err != nil:
		return err
	case f.asJSON && f.asCSV:
		return &usageError{"--json and --csv cannot be combined", "run the command twice"}
	case f.top < 0:
		return &usageError{"--top must not be negative", ""}
	}
	c, err := f.reading.loadOffline()
	if err != nil {
		return err
	}
	paths, err := f.reading.rulesOf(c, f.rules)
	if err != nil {
		return err
	}
	p := f.begin(s, args)
	simulation := offline.Simulation{
		AccessLogs: f.AccessLogs, Rules: paths, RuleOptions: c.RuleOptions, Domain: f.domain,
		MaxKeys: f.maxKeys, Top: f.top, AllKeys: f.asCSV,
	}
	if f.compare != "" {
		simulation.Candidate = rulePaths(f.compare)
	}
	report, err := simulation.Run(cmd.Context())
	p.clear()
	if err != nil {
		return err
	}
	if err := f.print(s, report); err != nil {
		return err
	}
	return f.judge(s, report, allowed)
}

// print writes the report in the requested formats.
func (f *simulateFlags) print(s streams, report *simulate.Report) error {
	switch {
	case f.asJSON:
		return printJSON(s.out, report)
	case f.asCSV:
		return report.WriteCSV(s.out)
	}
	return report.WriteText(s.out, f.top)
}

func (f *simulateFlags) maxNewRefusals() (allowance, error) {
	if f.most != "" && f.compare == "" {
		return allowance{}, &usageError{"--max-new-refusals needs --compare", "pass the current rules with --rules and the new ones with --compare"}
	}
	return parseAllowance(f.most)
}

// judge prints problems to standard error, and fails if there are any.
func (f *simulateFlags) judge(s streams, r *simulate.Report, a allowance) error {
	failed := f.complain(s, r)
	if r.Compare != nil {
		if problem := a.exceeded(r.Compare.NewlyRefused, r.Requests); problem != "" {
			newPaint(s.err).line("error", problem)
			failed = true
		}
	}
	if failed {
		return &failedError{exitFailed}
	}
	return nil
}

// complain prints which lines and logs could not be read, and reports whether
// the result is unreliable.
func (f *simulateFlags) complain(s streams, r *simulate.Report) bool {
	failed := complainOfLogs(s, r.Requests, r.Skipped, r.Logs, r.Samples)
	p := newPaint(s.err)
	matched := int64(0)
	for i := range r.Rules {
		matched += r.Rules[i].Requests
	}
	if r.Requests > 0 && matched == 0 {
		p.line("warning", "no rule applied to any request")
		p.line("hint", "headgate explain shows why a rule does not apply; only logged headers can match")
	}
	warnOfNoClient(p, r.NoClient)
	if n := r.NoStatus; n > 0 {
		p.line("warning", fmt.Sprintf("the status is not logged for %s: rules with charge_on count them", simulate.Plural(n, "request")))
		p.line("hint", "log it, for example with $status or %>s; for JSON lines name its key: --map status=KEY")
	}
	warnOfLacking(p, "", r)
	if r.Compare != nil {
		warnOfLacking(p, "new rules: ", r.Compare.New)
	}
	if n := r.Memory.Evicted; n > 0 {
		p.line("warning", fmt.Sprintf("the store was full: %s keys with counts were evicted, as serve would do", simulate.Thousands(n)))
		p.line("hint", "raise --max-keys, and store.memory.max_keys for serve")
	}
	return failed
}

// warnOfNoClient prints how many requests have no address.
func warnOfNoClient(p paint, n int64) {
	if n == 0 {
		return
	}
	p.line("warning", fmt.Sprintf("the client address is not logged for %s: rules that count by client_ip treat them as one client", simulate.Plural(n, "request")))
	p.line("hint", "log it, for example with $remote_addr or %h; for JSON lines name its key: --map client_ip=KEY")
}

// warnOfClients prints which logs have clients that are not the address of a peer.
func warnOfClients(p paint, logs []simulate.LogReport) {
	for i := range logs {
		l := &logs[i]
		if n := l.HostNames; n > 0 {
			p.line("warning", fmt.Sprintf("%s: the client is a host name, not an address, in %s (such as %s): client_ip counts by the name, and networks never match it",
				l.Name, simulate.Plural(n, "line"), l.HostName))
			p.line("hint", "turn HostnameLookups off in Apache; if the address is elsewhere in the line, name the format with --format")
		}
		if n := l.OnlyForwarded; n > 0 {
			p.line("warning", fmt.Sprintf("%s: %s with X-Forwarded-For and no address of the peer: client_ip is its last address", l.Name, simulate.Plural(n, "line")))
			p.line("hint", "if that is a proxy of yours, name it with --trusted-proxies; better log $remote_addr or %a as well")
		}
	}
}

// warnOfLacking prints which rules need attributes that the log does not have.
func warnOfLacking(p paint, of string, r *simulate.Report) {
	list := r.LackingText()
	const most = 10
	for i, text := range list {
		if i == most {
			p.line("warning", fmt.Sprintf("%sthe same is true of %d more rules; see --json", of, len(list)-most))
			break
		}
		p.line("warning", of+text)
	}
	if r.LogsMore() {
		p.line("hint", "log it, for example with $http_x_api_key; for JSON lines name its key: --map header:X-Api-Key=KEY; token claims are never logged")
	}
}

func complainOfLogs(s streams, requests, skipped int64, logs []simulate.LogReport, samples []simulate.Sample) bool {
	p := newPaint(s.err)
	failed := false
	late := int64(0)
	for _, l := range logs {
		late += l.Late
		if l.Problem != "" {
			failed = true
			p.line("error", fmt.Sprintf("%s: %s; the report covers the lines before that", l.Name, l.Problem))
		}
	}
	if skipped > 0 {
		label := "warning"
		if requests == 0 {
			label, failed = "error", true
		}
		p.line(label, fmt.Sprintf("%s could not be read", simulate.Plural(skipped, "line")))
		for _, one := range samples {
			at := one.File
			if one.Line > 0 {
				at += ":" + strconv.FormatInt(one.Line, 10)
			}
			p.printf("  %s: %s\n      %s\n", at, one.Why, strconv.Quote(one.Text))
		}
	}
	warnOfClients(p, logs)
	if late > 0 {
		p.line("warning", simulate.Plural(late, "line")+" out of order by more than --reorder")
		p.line("hint", "they are counted at the time of the line before them")
	}
	return failed
}
