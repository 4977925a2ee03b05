package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/replay/offline"
)

// Shell completion. Cobra completes commands, flags and files; the names of
// domains and rules come from the rule files, or from the server that a command calls.

// completion returns the words that may complete toComplete.
type completion = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// words completes one of the words.
func words(list ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// ruleFiles completes rule files and folders.
func ruleFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeFlags adds completion for the flags of cmd, and of the commands below it, that
// several commands share.
func completeFlags(cmd *cobra.Command, server *connection) {
	for _, sub := range cmd.Commands() {
		completeFlags(sub, server)
	}
	names := func(list func(offline.RuleNames) []string) completion {
		return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			flags := cmd.Flags()
			paths, _ := flags.GetString("rules")
			domain, _ := flags.GetString("domain")
			if flags.Lookup("address") != nil && (server.address != "" || flags.Lookup("rules") == nil) {
				return list(serverNames(cmd.Context(), server, domain)), cobra.ShellCompDirectiveNoFileComp
			}
			return list(offline.NamesOf(domain, rulePaths(paths)...)), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for flag, complete := range map[string]completion{
		"config":     ruleFiles,
		"rules":      ruleFiles,
		"candidate":  ruleFiles,
		"log-level":  words("debug", "info", "warn", "error"),
		"log-format": words("auto", "text", "json"),
		"method":     words("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
		"domain":     names(func(n offline.RuleNames) []string { return n.Domains }),
		"rule":       names(func(n offline.RuleNames) []string { return n.Rules }),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, complete) // the command may have its own
		}
	}
}

// completionTimeout is how long a shell waits for the server whose names it completes.
const completionTimeout = time.Second

// serverNames returns the names of the domains and rules of a running server, of all
// domains if domain is empty; none if the server does not answer.
func serverNames(ctx context.Context, server *connection, domain string) (names offline.RuleNames) {
	client, err := server.client()
	if err != nil {
		return names
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var answer struct {
		Rules []struct{ Domain, Name string } `json:"rules"`
	}
	if err := client.getJSON(ctx, "/v1/rules", nil, &answer); err != nil {
		return names
	}
	for _, r := range answer.Rules {
		if !slices.Contains(names.Domains, r.Domain) {
			names.Domains = append(names.Domains, r.Domain)
		}
		if (domain == "" || domain == r.Domain) && !slices.Contains(names.Rules, r.Name) {
			names.Rules = append(names.Rules, r.Name)
		}
	}
	return names
}

// rulePaths returns the files and folders of a flag; without any, ./rules.
func rulePaths(flag string) []string {
	if flag == "" {
		if info, err := os.Stat("rules"); err == nil && info.IsDir() {
			return []string{"rules"}
		}
		return nil
	}
	return strings.Split(flag, ",")
}
