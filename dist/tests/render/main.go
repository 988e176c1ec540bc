// Renders a chart as Helm 3 does, for the parts of its language that this repository's chart uses: values merged in
// order, named templates, sprig's functions, `include`, `tpl`, `required`, `fail`, `toYaml`, `fromYaml`, and the objects
// Release, Chart, Values, Files.Get, Template and Capabilities. It takes the place of `helm template` where no helm can be had.
//
// Usage: render CHART NAME NAMESPACE KUBE_VERSION [VALUES.yaml …]
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type object = map[string]interface{}

func main() {
	if len(os.Args) < 5 {
		exit(errors.New("usage: render CHART NAME NAMESPACE KUBE_VERSION [VALUES.yaml …]"))
	}
	folder := os.Args[1]
	var chart, values object
	exit(load(filepath.Join(folder, "Chart.yaml"), &chart))
	exit(load(filepath.Join(folder, "values.yaml"), &values))
	for _, path := range os.Args[5:] {
		var more object
		exit(load(path, &more))
		values = merge(values, more)
	}
	name, _ := chart["name"].(string)
	context := object{
		"Values": values,
		"Chart": object{
			"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"],
			"Description": chart["description"], "Type": chart["type"],
		},
		"Release": object{
			"Name": os.Args[2], "Namespace": os.Args[3], "Service": "Helm",
			"IsInstall": true, "IsUpgrade": false, "Revision": 1,
		},
		"Files":        files{folder},
		"Capabilities": object{"KubeVersion": object{"Version": os.Args[4]}},
	}
	exit(render(folder, name, context))
}

// Files of the chart besides its templates.
type files struct{ folder string }

// Get returns the text of a file, and nothing for a missing one, as Helm does.
func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.folder, filepath.FromSlash(name)))
	if err != nil {
		return ""
	}
	return string(text)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(path string, into *object) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, into)
}

// Merges values: maps by key, everything else is replaced, null removes.
func merge(base, over object) object {
	merged := object{}
	for key, value := range base {
		merged[key] = value
	}
	for key, value := range over {
		inner, isMap := value.(object)
		below, wasMap := merged[key].(object)
		switch {
		case value == nil:
			delete(merged, key)
		case isMap && wasMap:
			merged[key] = merge(below, inner)
		default:
			merged[key] = value
		}
	}
	return merged
}

func render(folder, chart string, context object) error {
	all := template.New("").Option("missingkey=zero")
	all.Funcs(functions(all))
	files, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := all.New(path(chart, file)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "_") {
			continue
		}
		context["Template"] = object{"Name": path(chart, file), "BasePath": chart + "/templates"}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, path(chart, file), context); err != nil {
			return err
		}
		// Helm prints "<no value>" of missing keys as nothing.
		text := strings.ReplaceAll(out.String(), "<no value>", "")
		fmt.Printf("---\n# Source: %s\n%s\n", path(chart, file), text)
	}
	return nil
}

func path(chart, file string) string {
	return chart + "/templates/" + filepath.Base(file)
}

func functions(all *template.Template) template.FuncMap {
	// Sprig's, without those that read the machine.
	named := sprig.TxtFuncMap()
	delete(named, "env")
	delete(named, "expandenv")
	named["toYaml"] = toYaml
	named["fromYaml"] = func(text string) object {
		read := object{}
		if err := yaml.Unmarshal([]byte(text), &read); err != nil {
			read["Error"] = err.Error()
		}
		return read
	}
	named["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	named["tpl"] = func(text string, data interface{}) (string, error) {
		copied, err := all.Clone()
		if err != nil {
			return "", err
		}
		parsed, err := copied.New("tpl").Parse(text)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		err = parsed.Execute(&out, data)
		return out.String(), err
	}
	named["required"] = func(sentence string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || (isText && text == "") {
			return nil, errors.New(sentence)
		}
		return value, nil
	}
	named["lookup"] = func(string, string, string, string) object { return object{} }
	return named
}

func toYaml(value interface{}) string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(value); err != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}
