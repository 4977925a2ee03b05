package app

import (
	"github.com/headgate/headgate/internal/base/diagnostic"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/xds"
)

// followsPlane reports whether rules come from a control plane.
func (a *App) followsPlane() bool {
	return a.options.Config.RulesFrom == config.FromXDS && len(a.options.BuiltIn) == 0
}

// newPlane returns the client of the control plane.
func (a *App) newPlane() (*xds.Client, error) {
	c := &a.options.Config.XDS
	o := xds.Options{
		Address: c.Address, NodeID: c.NodeID, Apply: a.applyPlane, Logger: a.log, Clock: a.options.Clock,
		Backoff: a.options.Backoff,
	}
	if c.TLS {
		o.TLS = &xds.TLSFiles{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
	}
	client, err := xds.New(o)
	if err != nil {
		return nil, &config.SourceError{Source: "xds", Message: err.Error()}
	}
	return client, nil
}

// applyPlane puts a snapshot in force, or leaves everything as it was.
func (a *App) applyPlane(sources []rulefile.Source) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	first := a.state.Load().waiting
	rs, diagnostics := a.options.Config.RuleOptions.Parse(sources...)
	var err error
	if rs == nil {
		err = diagnostic.Problems(diagnostics)
	}
	if err == nil {
		err = a.vanished(rs)
	}
	if err := a.swap(rs, err); err != nil {
		return err
	}
	a.warnOfNone(rs.Stats(), "the control plane has sent none")
	if first {
		a.doors.SetServing(true)
		if a.draining.Load() { // perhaps since just now
			a.doors.SetServing(false)
		}
	}
	return nil
}
