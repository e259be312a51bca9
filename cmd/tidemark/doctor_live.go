package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// least is the least version of nats-server: 2.15.2 can delete a stream's directory on an
// error of recovery.
const least = "2.15.3"

// clockApart is the difference of clocks above which doctor warns.
const clockApart = 2 * time.Second

// scatterMore is how long further answers are waited for.
const scatterMore = 200 * time.Millisecond

// server looks at version, account and clock.
func (d *doctor) server(ctx context.Context) {
	nc := d.conn.NC
	version := nc.ConnectedServerVersion()
	where := nc.ConnectedUrlRedacted()
	if olderThan(version, least) {
		d.say("server", where, checkFail, "nats-server "+version, "run nats-server "+least+" or later")
	} else {
		rtt, err := nc.RTT()
		if err != nil {
			d.say("server", where, checkFail, err.Error(), "look at the server's log")
		} else {
			d.say("server", where, checkOK, fmt.Sprintf("nats-server %s, answers in %s", version, rtt.Round(10*time.Microsecond)), "")
		}
	}
	info, err := d.conn.JS.AccountInfo(ctx)
	if err != nil {
		d.say("jetstream", where, checkFail, err.Error(), "enable JetStream for this account")
		return
	}
	d.say("jetstream", where, checkOK, fmt.Sprintf("API level %d, %d needed", info.API.Level, natsio.MinAPILevel), "")
	states, err := natsio.SurveyShared(ctx, d.conn.JS)
	if err != nil || len(states) == 0 || states[0].Missing {
		return // said by streams
	}
	apart := states[0].Clock.Round(time.Millisecond)
	if apart.Abs() > clockApart {
		d.say("clock", where, checkWarn, fmt.Sprintf("the server's clock is %s from this machine's", apart), "set both by NTP: event times are checked against arrival")
		return
	}
	d.say("clock", where, checkOK, fmt.Sprintf("%s from this machine's", apart), "")
}

// olderThan compares versions such as 2.15.3 number by number.
func olderThan(version, other string) bool {
	var a, b [3]int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &a[0], &a[1], &a[2]); n < 3 || err != nil {
		return false // a development version
	}
	if _, err := fmt.Sscanf(other, "%d.%d.%d", &b[0], &b[1], &b[2]); err != nil {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// durability asks the monitoring port whether acknowledged means on the disk.
func (d *doctor) durability(ctx context.Context) {
	if d.monitor == "" {
		d.say("sync_interval", "", checkWarn, "not visible over NATS", "name the monitoring address with --monitor, or check that it is always in the server's configuration (`tidemark up` makes sure of it)")
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.monitor, "/")+"/jsz?config=1", nil)
	if err != nil {
		d.say("sync_interval", d.monitor, checkFail, err.Error(), "give an address such as http://127.0.0.1:8222")
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.say("sync_interval", d.monitor, checkWarn, "not visible: "+err.Error(), "check the address, or the server's configuration")
		return
	}
	defer resp.Body.Close()
	var jsz struct {
		Config struct {
			SyncAlways bool  `json:"sync_always"`
			Interval   int64 `json:"sync_interval"`
		} `json:"config"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&jsz); err != nil {
		d.say("sync_interval", d.monitor, checkWarn, "the answer cannot be read: "+err.Error(), "check that it is the monitoring port of nats-server")
		return
	}
	if !jsz.Config.SyncAlways {
		d.say("sync_interval", d.monitor, checkFail, fmt.Sprintf("it is %s: what was acknowledged within it is lost with the power", time.Duration(jsz.Config.Interval)), "set jetstream { sync_interval: always }")
		return
	}
	d.say("sync_interval", d.monitor, checkOK, "always", "")
}

// room compares what is stored with what may be.
func (d *doctor) room(ctx context.Context) {
	info, err := d.conn.JS.AccountInfo(ctx)
	if err != nil {
		return // said by server
	}
	used, limit := info.Store, info.Limits.MaxStore
	switch {
	case limit <= 0:
		d.say("room", "account", checkOK, fmt.Sprintf("%s stored, the account has no limit of its own; the disk's is the server's", byteText(used)), "")
	case used*100 >= uint64(limit)*95:
		d.say("room", "account", checkFail, fmt.Sprintf("%s of %s stored", byteText(used), byteText(uint64(limit))), "raise the account's limit: journals stop when it is full")
	case used*100 >= uint64(limit)*80:
		d.say("room", "account", checkWarn, fmt.Sprintf("%s of %s stored", byteText(used), byteText(uint64(limit))), "raise the account's limit soon")
	default:
		d.say("room", "account", checkOK, fmt.Sprintf("%s of %s stored", byteText(used), byteText(uint64(limit))), "")
	}
}

// leases looks for units that nobody holds.
func (d *doctor) leases(ctx context.Context) {
	if len(d.docs.Streams) == 0 {
		return
	}
	bucket, err := d.conn.JS.KeyValue(ctx, subject.LeaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		d.say("leases", "", checkFail, "the bucket does not exist", "apply the documents again")
		return
	}
	if err != nil {
		d.say("leases", "", checkFail, err.Error(), "see the server's log")
		return
	}
	all := d.units()
	for _, role := range slices.Sorted(maps.Keys(all)) {
		units := all[role]
		holders, missing := map[string]int{}, []string{}
		for _, unit := range units {
			entry, err := bucket.Get(ctx, unit)
			var held struct {
				Instance string `json:"instance"`
			}
			if err != nil || json.Unmarshal(entry.Value(), &held) != nil || held.Instance == "" {
				missing = append(missing, unit)
				continue
			}
			holders[held.Instance]++
		}
		if len(missing) > 0 {
			d.say("leases", role, checkFail, fmt.Sprintf("%d of %d units have no owner, the first is %s", len(missing), len(units), missing[0]), "start a `tidemark "+role+"`; if one runs, see its /readyz?verbose")
			continue
		}
		d.say("leases", role, checkOK, fmt.Sprintf("%d units held by %s", len(units), holderText(holders)), "")
	}
}

// units lists the lease keys that must have an owner, by role.
func (d *doctor) units() map[string][]string {
	units := map[string][]string{}
	for _, e := range d.docs.Streams {
		bs := e.Stream.Name
		for source, n := range d.sourcesOf(bs) {
			for p := range n {
				units["ingest"] = append(units["ingest"], subject.Lease("ingest", bs, fmt.Sprintf("%s/%d", source, p)))
			}
		}
	}
	for _, e := range d.docs.Policies {
		p := e.Policy
		for pp := range d.partitionsOf(p.Stream) {
			unit := fmt.Sprintf("%s.%d.%s", p.Job, p.Generation, subject.PP(pp))
			for _, role := range []string{"windower", "projector"} {
				units[role] = append(units[role], subject.Lease(role, p.Stream, unit))
			}
		}
	}
	return units
}

func holderText(holders map[string]int) string {
	parts := make([]string, 0, len(holders))
	for instance, n := range holders {
		parts = append(parts, fmt.Sprintf("%s (%d)", instance, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// windowers asks the owner of every windows journal.
func (d *doctor) windowers(ctx context.Context) {
	for _, e := range d.docs.Policies {
		p := e.Policy
		of, live, before := p.Stream+"/"+p.PolicyGeneration(), 0, len(d.found)
		for pp := range d.partitionsOf(p.Stream) {
			var status struct {
				Role   string `json:"role"`
				Halted string `json:"halted"`
			}
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			err := d.cli.ask(asking, d.conn.NC, subject.WindowerStatus(p.Stream, p.Job, p.Generation, pp), "windower", struct{}{}, &status)
			cancel()
			switch {
			case err != nil:
				d.say("windower", of+"/"+subject.PP(pp), checkFail, "no owner answers: "+err.Error(), "start a `tidemark windower`")
			case status.Halted != "":
				d.say("windower", of+"/"+subject.PP(pp), checkFail, "halted: "+status.Halted, "")
			case status.Role == "recovering":
				d.say("windower", of+"/"+subject.PP(pp), checkWarn, "recovers from the journal", "wait; /readyz?verbose shows how far it is")
			default:
				live++
			}
		}
		if len(d.found) == before {
			d.say("windower", of, checkOK, fmt.Sprintf("%d key partitions live", live), "")
		}
	}
}

// projectors gathers the status of every projector process.
func (d *doctor) projectors(ctx context.Context) {
	for _, e := range d.docs.Streams {
		bs, before := e.Stream.Name, len(d.found)
		answers, err := scatter(ctx, d.conn.NC, subject.Query(bs, "status"), []byte("{}"))
		if err != nil {
			d.say("projector", bs, checkFail, "none answers: "+err.Error(), "start a `tidemark projector`")
			continue
		}
		owned := 0
		for _, data := range answers {
			var status struct {
				Partitions []struct {
					Job        string `json:"job"`
					Generation int    `json:"generation"`
					Partition  int    `json:"partition"`
					Role       string `json:"role"`
					Problem    string `json:"problem"`
				} `json:"partitions"`
			}
			if err := json.Unmarshal(data, &status); err != nil {
				d.say("projector", bs, checkFail, "its answer cannot be read: "+err.Error(), "run the same version everywhere")
				continue
			}
			for _, p := range status.Partitions {
				if p.Problem != "" {
					d.say("projector", fmt.Sprintf("%s/%s@%d/%s", bs, p.Job, p.Generation, subject.PP(p.Partition)), checkFail, "halted: "+p.Problem, "")
				}
				if p.Role == "owner" {
					owned++
				}
			}
		}
		if len(d.found) == before {
			d.say("projector", bs, checkOK, fmt.Sprintf("%d processes answer, %d partitions owned", len(answers), owned), "")
		}
	}
}

// ingest asks whether any process takes events in.
func (d *doctor) ingest(ctx context.Context) {
	for _, e := range d.docs.Streams {
		answers, err := scatter(ctx, d.conn.NC, subject.IngestFlush(e.Stream.Name), nil)
		if err != nil {
			d.say("ingest", e.Stream.Name, checkFail, "none answers: "+err.Error(), "start a `tidemark ingest`")
			continue
		}
		bad := false
		for _, data := range answers {
			if err := decodeReply(data, nil); err != nil {
				bad = true
				d.say("ingest", e.Stream.Name, checkFail, err.Error(), "see /readyz?verbose of that process")
			}
		}
		if !bad {
			d.say("ingest", e.Stream.Name, checkOK, fmt.Sprintf("%d processes answer and mark", len(answers)), "")
		}
	}
}

// scatter asks every process that listens and answers what they say.
func scatter(ctx context.Context, nc *nats.Conn, subj string, body []byte) ([][]byte, error) {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // nothing is read from it any more
	if err := nc.PublishRequest(subj, inbox, body); err != nil {
		return nil, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for ; err == nil; m, err = sub.NextMsg(scatterMore) {
		out = append(out, m.Data)
	}
	if errors.Is(err, nats.ErrTimeout) {
		return out, nil
	}
	return out, err
}
