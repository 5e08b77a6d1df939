// Command promql reads PromQL expressions, one JSON string a line, and writes
// for each what it selects, one JSON array a line: the metric and the labels
// that are matched, grouped or joined by. It exits with 1 at the first
// expression that Prometheus's own parser does not take.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selected is one metric of an expression with the labels that the expression
// names and that it must therefore have.
type selected struct {
	Metric string   `json:"metric"`
	Labels []string `json:"labels"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	write := json.NewEncoder(out)
	for lines.Scan() {
		var text string
		if err := json.Unmarshal(lines.Bytes(), &text); err != nil {
			return fmt.Errorf("%q is no JSON string: %w", lines.Text(), err)
		}
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if err := write.Encode(selects(expr)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// selects lists the metrics of an expression. A label that an operation around
// a metric names counts for every metric below it.
func selects(expr parser.Expr) []selected {
	found := []selected{}
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		s := selected{Metric: v.Name}
		for _, m := range v.LabelMatchers {
			if m.Name != labels.MetricName {
				s.Labels = append(s.Labels, m.Name)
			} else if s.Metric == "" {
				s.Metric = m.Value
			}
		}
		for _, around := range path {
			switch a := around.(type) {
			case *parser.AggregateExpr:
				s.Labels = append(s.Labels, a.Grouping...)
			case *parser.BinaryExpr:
				if a.VectorMatching != nil {
					s.Labels = append(s.Labels, a.VectorMatching.MatchingLabels...)
				}
			}
		}
		slices.Sort(s.Labels)
		s.Labels = slices.Compact(s.Labels)
		found = append(found, s)
		return nil
	})
	return found
}
