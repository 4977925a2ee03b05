package main

import (
	"fmt"
	"io"
	"os"
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

// defaultReorder is how much earlier than a line before it a line may be:
// longer than most requests take.
const defaultReorder = 10 * time.Second

func (f *logFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Format, "format", "", "the logs' format: its text as in nginx's log_format, Apache's LogFormat or\n"+
		"Envoy, the path of an nginx.conf that has it, or a name (default: found out)")
	flags.StringSliceVar(&f.Map, "map", nil, "which keys of JSON lines are what, such as client_ip=ip,path=url,time=when")
	flags.StringVar(&f.Timezone, "timezone", "UTC", "the zone of times that do not say theirs")
	flags.StringSliceVar(&f.TrustedProxies, "trusted-proxies", nil, "addresses and networks whose X-Forwarded-For is believed, if it is logged")
	flags.DurationVar(&f.Reorder, "reorder", defaultReorder, "how much earlier than a line before it a line may be")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress, and nothing about the logs but what is wrong")
	_ = cmd.RegisterFlagCompletionFunc("format", words(accesslog.Names()...)) // fails only if there is one already
}

// begin makes f tell about logs and progress, and returns how to end that.
func (f *logFlags) begin(s streams, paths []string) *logProgress {
	f.Paths, f.Stdin = paths, s.in
	p := &logProgress{overwritten: overwritten{paint: newPaint(s.err)}}
	if f.quiet {
		return p
	}
	f.Told = func(r simulate.LogReport) {
		p.clear()
		compressed, how := "", "as told"
		if r.Compression != "" {
			compressed = ", compressed by " + r.Compression
		}
		if r.Detected {
			how = "found out by its first lines"
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

// logProgress is a line on a terminal: how much has been read, how fast, and
// how long it still takes.
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

// progressLine is what is shown after some time.
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
	reading                            flags
	rules, compare, domain, most, html string
	asJSON, asCSV                      bool
	top, maxKeys                       int
}

func newSimulate(s streams) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --rules RULES LOG...",
		Short: "replay access logs against rules: who would have been refused?",
		Long: `Simulate replays access logs through the engine, the store and the rules that
serve runs, on virtual time: the clock is the log. It says of every rule how
many requests it would have refused, whose, and when.

It reads nginx and Apache (common, combined, any log_format or LogFormat),
Caddy, Envoy, Traefik, AWS ALB and JSON lines, plain or compressed by gzip, zstd
or bzip2; - is standard input. Several logs are merged by their times. Lines
that it cannot read are counted and shown by sample.

With --compare it tells old rules (--rules) from new ones: who would newly be
refused, who would newly pass, and by which rule.

It exits with 0, with 1 if an input is wrong or more would newly be refused than
--max-new-refusals allows, and with 2 if the command line is wrong.`,
		Example: `  headgate simulate --rules rules/ /var/log/nginx/access.log*
  zcat access.log.gz | headgate simulate --rules rules/ --json -
  headgate simulate --rules rules/ --format /etc/nginx/nginx.conf:main access.log
  headgate simulate --rules old/ --compare new/ --max-new-refusals 0.1% access.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{"simulate needs an access log", "such as headgate simulate --rules rules/ /var/log/nginx/access.log; - is standard input"}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rules, "rules", "", "rule files and folders, separated by commas (default ./rules)")
	f.reading.ruleOptions(cmd)
	flags.StringVar(&f.compare, "compare", "", "other rule files and folders, to compare with these")
	flags.StringVar(&f.domain, "domain", "", "whose rules apply (default: the only domain there is)")
	flags.StringVar(&f.most, "max-new-refusals", "", "with --compare: how many requests may newly be refused, as a number or as a share such as 0.1%")
	flags.StringVar(&f.html, "html", "", "write a report with charts to this file")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	flags.BoolVar(&f.asCSV, "csv", false, "print one line per rule and key as CSV")
	flags.IntVar(&f.top, "top", 5, "how many keys to list of each rule")
	flags.IntVar(&f.maxKeys, "max-keys", 0, "how many keys the store remembers (default: as serve, 1,000,000)")
	f.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("compare", ruleFiles) // fails only if there is one already
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd, s, args) }
	return cmd
}

func (f *simulateFlags) run(cmd *cobra.Command, s streams, args []string) error {
	allowed, err := f.maxNewRefusals()
	switch {
	case err != nil:
		return err
	case f.asJSON && f.asCSV:
		return &usageError{"--json and --csv do not go together", "run it twice"}
	case f.top < 0:
		return &usageError{"--top must not be negative", ""}
	}
	options, _, err := f.reading.loadRuleOptions()
	if err != nil {
		return err
	}
	p := f.begin(s, args)
	simulation := offline.Simulation{
		AccessLogs: f.AccessLogs, Rules: rulePaths(f.rules), RuleOptions: options, Domain: f.domain,
		MaxKeys: f.maxKeys, Top: f.top, AllKeys: f.asCSV,
	}
	if f.html != "" {
		simulation.Top = max(f.top, 20)
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

// print writes the report in the forms that are wanted.
func (f *simulateFlags) print(s streams, report *simulate.Report) error {
	if f.html != "" {
		if err := writeTo(f.html, report.WriteHTML); err != nil {
			return err
		}
	}
	switch {
	case f.asJSON:
		return printJSON(s.out, report)
	case f.asCSV:
		return report.WriteCSV(s.out)
	}
	return report.WriteText(s.out, f.top)
}

// writeTo writes a file.
func writeTo(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

func (f *simulateFlags) maxNewRefusals() (allowance, error) {
	if f.most != "" && f.compare == "" {
		return allowance{}, &usageError{"--max-new-refusals needs --compare", "give the rules that are live by --rules and the new ones by --compare"}
	}
	return parseAllowance(f.most)
}

// judge says on standard error what is wrong, and fails if something is.
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

// complain says which lines and logs could not be read, and reports whether
// the result is not to be relied on.
func (f *simulateFlags) complain(s streams, r *simulate.Report) bool {
	failed := complainOfLogs(s, r.Requests, r.Skipped, r.Logs, r.Samples)
	p := newPaint(s.err)
	matched := int64(0)
	for i := range r.Rules {
		matched += r.Rules[i].Requests
	}
	if r.Requests > 0 && matched == 0 {
		p.line("warning", "no rule applies to any of the requests")
		p.line("hint", "headgate explain says why a rule does not apply; a header counts only if it is in the log")
	}
	if n := r.NoClient; n > 0 {
		p.line("warning", fmt.Sprintf("of %s the log does not have the client's address: a rule that counts by client_ip took them all for one client", simulate.Plural(n, "request")))
		p.line("hint", "let the server log it, such as by $remote_addr or %h, or say which key of JSON lines has it: --map client_ip=KEY")
	}
	warnOfLacking(p, "", r.LackingText())
	if r.Compare != nil {
		warnOfLacking(p, "new rules: ", r.Compare.New.LackingText())
	}
	if n := r.Memory.Evicted; n > 0 {
		p.line("warning", fmt.Sprintf("%s keys that were not fresh were forgotten to make room, as serve would do", simulate.Thousands(n)))
		p.line("hint", "see --max-keys, and max_keys of the store")
	}
	return failed
}

// warnOfLacking says which rules ask for what the log does not have.
func warnOfLacking(p paint, of string, list []string) {
	const most = 10
	for i, text := range list {
		if i == most {
			p.line("warning", fmt.Sprintf("%sas much is true of %d more rules; see --json", of, len(list)-most))
			break
		}
		p.line("warning", of+text)
	}
	if len(list) > 0 {
		p.line("hint", "let the server log it, such as by $http_x_api_key, or say which key of JSON lines has it: --map header:X-Api-Key=KEY; claims of tokens are in no log")
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
			p.line("error", fmt.Sprintf("%s: %s; the report is about what came before", l.Name, l.Problem))
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
	if late > 0 {
		p.line("warning", simulate.Plural(late, "line")+" out of order by more than --reorder allows")
		p.line("hint", "they count as if they had come when the line before them came")
	}
	return failed
}
