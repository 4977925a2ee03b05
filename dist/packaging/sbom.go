package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The parts of an SPDX 2.3 document that are written.
type (
	spdx struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      spdxCreation   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name      string    `json:"name"`
		ID        string    `json:"SPDXID"`
		Version   string    `json:"versionInfo"`
		Download  string    `json:"downloadLocation"`
		Analyzed  bool      `json:"filesAnalyzed"`
		Declared  string    `json:"licenseDeclared"`
		Concluded string    `json:"licenseConcluded"`
		Copyright string    `json:"copyrightText"`
		Refs      []spdxRef `json:"externalRefs"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// sboms writes a list of the modules in each binary.
func (r *release) sboms(b *built, dist string) error {
	for _, p := range r.platforms {
		data, err := r.sbom(b, p)
		if err != nil {
			return err
		}
		if err := save(filepath.Join(dist, fmt.Sprintf("headgate_%s_%s_%s.spdx.json", r.bare(), p.system, p.arch)), data); err != nil {
			return err
		}
	}
	return nil
}

// sbom returns the list of one binary, from what the binary itself records.
func (r *release) sbom(b *built, p platform) ([]byte, error) {
	list, goVersion, err := modules(b.binaries[p])
	if err != nil {
		return nil, err
	}
	const own = "SPDXRef-headgate"
	goWord, _, _ := strings.Cut(goVersion, " ")
	doc := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name:      fmt.Sprintf("headgate %s %s", r.version, p),
		Namespace: fmt.Sprintf("https://github.com/headgate/headgate/spdx/%s/%s/%s-%s", r.version, r.commit, p.system, p.arch),
		Creation:  spdxCreation{r.date.Format(time.RFC3339), []string{"Tool: headgate-packaging-" + r.version}},
		Packages: []spdxPackage{
			spdxOf(own, module{"github.com/headgate/headgate", r.version}, "Apache-2.0"),
			spdxOf("SPDXRef-go", module{"stdlib", strings.TrimPrefix(goWord, "go")}, "BSD-3-Clause"),
		},
		Relationships: []spdxRelation{
			{"SPDXRef-DOCUMENT", "DESCRIBES", own},
			{own, "DEPENDS_ON", "SPDXRef-go"},
		},
	}
	for _, m := range list {
		id := "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(m.path+"-"+m.version, "-")
		doc.Packages = append(doc.Packages, spdxOf(id, m, "NOASSERTION"))
		doc.Relationships = append(doc.Relationships, spdxRelation{own, "DEPENDS_ON", id})
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	return append(data, '\n'), err
}

func spdxOf(id string, m module, license string) spdxPackage {
	return spdxPackage{
		Name: m.path, ID: id, Version: m.version, Download: "NOASSERTION",
		Declared: license, Concluded: "NOASSERTION", Copyright: "NOASSERTION",
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + strings.ReplaceAll(m.version, "+", "%2B")}},
	}
}
