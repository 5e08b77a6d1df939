package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// A source is what the comments of package fence/config say.
type source struct {
	types  map[string]string            // doc by type
	fields map[string]map[string]string // doc by type and field
	values map[string][]value           // of types with named values, in order
}

type value struct{ text, doc string }

// configurationFields are the tables of all fields: from the types by reflection,
// what they mean from their comments, the defaults from config.Default.
func configurationFields(root string) ([]byte, error) {
	s, err := readSource(filepath.Join(root, "fence/config/config.go"))
	if err != nil {
		return nil, err
	}
	w := &fieldWriter{source: s}
	w.group("", reflect.ValueOf(*config.Default()))
	return []byte(w.out.String()), errors.Join(w.faults...)
}

func readSource(file string) (*source, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	s := &source{types: map[string]string{}, fields: map[string]map[string]string{}, values: map[string][]value{}}
	for _, decl := range parsed.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.addType(spec, first(spec.Doc.Text(), group.Doc.Text()))
			case *ast.ValueSpec:
				s.addValue(spec)
			}
		}
	}
	return s, nil
}

func (s *source) addType(spec *ast.TypeSpec, doc string) {
	name := spec.Name.Name
	s.types[name] = sentence(doc, name)
	body, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	s.fields[name] = map[string]string{}
	for _, f := range body.Fields.List {
		for _, n := range f.Names {
			s.fields[name][n.Name] = sentence(f.Doc.Text(), n.Name)
		}
	}
}

func (s *source) addValue(spec *ast.ValueSpec) {
	kind, ok := spec.Type.(*ast.Ident)
	if !ok {
		return
	}
	for i, n := range spec.Names {
		if lit, ok := spec.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s.values[kind.Name] = append(s.values[kind.Name], value{strings.Trim(lit.Value, `"`), sentence(spec.Doc.Text(), n.Name)})
		}
	}
}

// packageNote is where a comment sends a reader of Go.
var packageNote = regexp.MustCompile(` \(package \w+\)`)

// sentence is a comment as a sentence about the field: without its Go name.
func sentence(doc, name string) string {
	doc = packageNote.ReplaceAllString(strings.Join(strings.Fields(doc), " "), "")
	for _, prefix := range []string{name + ": ", name + " is "} {
		if rest, ok := strings.CutPrefix(doc, prefix); ok {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return doc
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// A fieldWriter writes one table for each group of fields.
type fieldWriter struct {
	*source
	out    strings.Builder
	faults []error
}

func (w *fieldWriter) group(path string, v reflect.Value) {
	title := path
	if title == "" {
		title = "The file"
	} else {
		title = "`" + title + "`"
	}
	fmt.Fprintf(&w.out, "### %s\n\n%s\n\n", title, w.types[v.Type().Name()])
	if v.NumField() == 0 {
		return
	}
	w.out.WriteString("| field | type | default | |\n|---|---|---|---|\n")
	var later []func()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if next := w.field(path, v, f, v.Field(i)); next != nil {
			later = append(later, next)
		}
	}
	w.out.WriteString("\n")
	for _, next := range later {
		next()
	}
}

// field writes a row. It returns what writes the group that the field is of.
func (w *fieldWriter) field(path string, in reflect.Value, f reflect.StructField, v reflect.Value) (next func()) {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	at := strings.TrimPrefix(path+"."+name, ".")
	kind, byDefault := f.Type, "`"+asYAML(v)+"`"
	says := w.fields[in.Type().Name()][f.Name]
	word := kindWord(kind)
	switch inner := groupOf(kind); {
	case inner != nil:
		says = first(says, w.types[inner.Name()])
		if kind.Kind() == reflect.Slice {
			word, at = "list of groups", at+"[]"
		}
		byDefault = "see [below](#" + slug("`"+at+"`") + ")"
		if kind.Kind() != reflect.Struct {
			byDefault = "none; see [below](#" + slug("`"+at+"`") + ")"
		}
		next = func() { w.group(at, defaultOf(inner, v)) }
	case len(w.values[kind.Name()]) > 0:
		says = first(says, w.types[kind.Name()])
		word, says = w.named(kind.Name(), says)
	}
	if v.IsZero() && next == nil && word != "true or false" && word != "duration" {
		byDefault = "none"
	}
	if says == "" && name != "apiVersion" && name != "kind" {
		w.faults = append(w.faults, fmt.Errorf("%s has no comment in fence/config: what is it, in which unit?", at))
	}
	if name == "apiVersion" || name == "kind" {
		says = "Required, and exactly this."
	}
	if rest, named := strings.CutPrefix(says, f.Name+" "); named {
		says = "`" + name + "` " + rest
	}
	fmt.Fprintf(&w.out, "| `%s` | %s | %s | %s |\n", name, word, byDefault, strings.ReplaceAll(says, "|", "\\|"))
	return next
}

// named are the values that a field may have.
func (w *fieldWriter) named(kind, says string) (word, text string) {
	var names, docs []string
	for _, v := range w.values[kind] {
		names = append(names, "`"+v.text+"`")
		if v.doc != "" {
			docs = append(docs, "`"+v.text+"` "+strings.TrimPrefix(v.doc, v.text+" "))
		}
	}
	return strings.Join(names, " or "), strings.TrimSpace(says + " " + strings.Join(docs, " "))
}

// groupOf is the struct that a field leads to; nil: it is a value.
func groupOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && t.Name() != "Duration" {
		return t
	}
	return nil
}

// defaultOf is what a group has when it is written without fields.
func defaultOf(t reflect.Type, v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Struct:
		return v
	case t == reflect.TypeFor[config.Agent]():
		return reflect.ValueOf(config.DefaultAgent())
	}
	return reflect.Zero(t)
}

func kindWord(t reflect.Type) string {
	switch {
	case t.Name() == "Duration":
		return "duration"
	case t.Name() == "Percent":
		return "percentage"
	case groupOf(t) != nil:
		return "group"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "whole number"
	case reflect.Map:
		return "map of " + kindWord(t.Elem())
	case reflect.Slice:
		return "list of " + kindWord(t.Elem())
	}
	return "text"
}

func asYAML(v reflect.Value) string {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(text), `"`)
}
