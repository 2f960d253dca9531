// Renders the templates of a chart with the functions of Helm that it uses.
//
//	chart FOLDER < {"Values": ..., "Release": ..., "Chart": ...}
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var data map[string]any
	check(json.NewDecoder(os.Stdin).Decode(&data))
	all := template.New("chart").Option("missingkey=error")
	marshalled := func(value any) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	}
	all.Funcs(template.FuncMap{
		"include": func(name string, of any) (string, error) {
			var text bytes.Buffer
			err := all.ExecuteTemplate(&text, name, of)
			return text.String(), err
		},
		"nindent": func(count int, text string) string {
			pad := "\n" + strings.Repeat(" ", count)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"toJson": marshalled,
		"toYaml": marshalled, // JSON is YAML
		"kindIs": func(kind string, value any) bool { return fmt.Sprintf("%T", value) == kind },
		"ternary": func(one, other any, first bool) any {
			if first {
				return one
			}
			return other
		},
		"quote": func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"default": func(usual, value any) any {
			if value == nil || value == "" {
				return usual
			}
			return value
		},
		"trunc":      func(count int, text string) string { return text[:min(count, len(text))] },
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
	})
	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		_, err = all.New(filepath.Base(file)).Parse(string(text))
		check(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".yaml") {
			fmt.Println("---")
			check(all.ExecuteTemplate(os.Stdout, filepath.Base(file), data))
		}
	}
}
