package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// program is the name that is completed.
const program = "csi-fencepost"

const completionHelp = `csi-fencepost completion bash|zsh|fish|powershell prints a script that completes subcommands and flags in that shell.
It changes nothing. For this session of bash: source <(csi-fencepost completion bash)`

// Completion is the subcommand that prints a shell's completion script. The
// scripts, and what they ask this program while somebody types, are cobra's.
func Completion(table func() []Command) Command {
	scripts := []struct {
		shell string
		write func(root *cobra.Command, w io.Writer) error
	}{
		{"bash", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", (*cobra.Command).GenZshCompletion},
		{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"powershell", (*cobra.Command).GenPowerShellCompletionWithDesc},
	}
	var shells []string
	for _, s := range scripts {
		shells = append(shells, s.shell)
	}
	run := func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		f := NewFlags("completion", completionHelp)
		if err := f.Parse(args); err != nil {
			return err
		}
		if f.NArg() != 1 {
			return f.Wrong("it takes the name of a shell, got %d arguments: %s", f.NArg(), alternatives(shells))
		}
		for _, s := range scripts {
			if s.shell == f.Arg(0) {
				return s.write(tree(ctx, table()), stdout)
			}
		}
		return f.Wrong("shell %q is not known: it has to be %s", f.Arg(0), alternatives(shells))
	}
	return Command{Name: "completion", Summary: "print a script that completes subcommands and flags in your shell", Args: shells, Run: run}
}

// completes tells that a script of Completion asks what may come next.
func completes(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// complete answers it.
func complete(ctx context.Context, table []Command, args []string, stdout, stderr io.Writer) error {
	root := tree(ctx, table)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// tree is the table as cobra wants it. It runs nothing: each subcommand is asked
// for its help, which carries its flags and its own subcommands.
func tree(ctx context.Context, table []Command) *cobra.Command {
	root := &cobra.Command{Use: program, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	grow(ctx, root, table)
	root.SetHelpCommand(&cobra.Command{Use: "help", Short: helpSummary, Run: func(*cobra.Command, []string) {}})
	return root
}

func grow(ctx context.Context, of *cobra.Command, table []Command) {
	for _, c := range table {
		branch := &cobra.Command{Use: c.Name, Short: c.Summary, Run: func(*cobra.Command, []string) {}}
		branch.ValidArgsFunction = func(_ *cobra.Command, before []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(before) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.Args, cobra.ShellCompDirectiveNoFileComp
		}
		of.AddCommand(branch)
		var help *Help
		if !errors.As(c.Run(ctx, []string{"--help"}, io.Discard, io.Discard), &help) {
			continue
		}
		if help.flags != nil {
			branch.Flags().AddFlagSet(help.flags)
		}
		if len(help.formats) > 0 {
			words := cobra.FixedCompletions(help.formats, cobra.ShellCompDirectiveNoFileComp)
			_ = branch.RegisterFlagCompletionFunc(outputFlag, words) // the flag is there: Output made it
		}
		grow(ctx, branch, help.table)
	}
}

// HelpWith is the error of a subcommand of which only this help was asked for, and
// that has these flags.
func HelpWith(text string, flags *pflag.FlagSet) error { return &Help{text: text, flags: flags} }
