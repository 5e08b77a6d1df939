package contract

import (
	"encoding/xml"
	"io"
)

type metadata struct {
	XMLName    xml.Name   `xml:"resource-agent"`
	Name       string     `xml:"name,attr"`
	Short      string     `xml:"shortdesc,attr"`
	Long       string     `xml:"longdesc"`
	VendorURL  string     `xml:"vendor-url"`
	Parameters []metaItem `xml:"parameters>parameter"`
	Actions    []metaVerb `xml:"actions>action"`
}

type metaItem struct {
	Name      string      `xml:"name,attr"`
	Unique    int         `xml:"unique,attr"`
	Required  int         `xml:"required,attr"`
	Obsoletes string      `xml:"obsoletes,attr,omitempty"`
	Getopt    metaGetopt  `xml:"getopt"`
	Content   metaContent `xml:"content"`
	Short     string      `xml:"shortdesc"`
}

type metaGetopt struct {
	Mixed string `xml:"mixed,attr"`
}

type metaContent struct {
	Type    string `xml:"type,attr"`
	Default string `xml:"default,attr,omitempty"`
}

type metaVerb struct {
	Name      string `xml:"name,attr"`
	Automatic *int   `xml:"automatic,attr"`
}

// obsolete names of parameters, by the one in use.
var obsolete = map[string]string{plug: "port", "username": "login", "password": "passwd", "ip": "ipaddr"}

// writeMetadata prints what fence-agents call metadata.
func (a *Agent) writeMetadata(out io.Writer) error {
	never := 0
	m := metadata{
		Name: prefix + a.Name, Short: a.Short, Long: a.Long,
		VendorURL: "https://github.com/csi-fencepost/csi-fencepost",
		Parameters: []metaItem{{
			Name: "action", Required: 1, Getopt: metaGetopt{"-o, --action=[action]"}, Content: metaContent{Type: "string"},
			Short: "What to do. There is no default.",
		}},
	}
	for _, p := range a.all() {
		item := metaItem{
			Name: p.Name, Obsoletes: obsolete[p.Name], Getopt: metaGetopt{"--" + p.Name + "=[" + p.Name + "]"},
			Content: metaContent{Type: p.Type, Default: p.Default}, Short: p.Help,
		}
		if item.Content.Type == "" {
			item.Content.Type = "string"
		}
		if p.Required {
			item.Required = 1
		}
		m.Parameters = append(m.Parameters, item)
	}
	for _, name := range actions {
		verb := metaVerb{Name: name}
		if name == "on" {
			verb.Automatic = &never
		}
		m.Actions = append(m.Actions, verb)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(out)
	e.Indent("", " ")
	if err := e.Encode(m); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}
