package policy

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// zoneData is the IANA time zone database, in the public domain, as the Go distribution
// packs it (lib/time/zoneinfo.zip). It is embedded here, and no other is ever asked, so
// that a zone means the same on every machine that runs a policy. Another edition of it
// can move the windows of a calendar: replacing it raises window.CoreVersion.
//
//go:embed zoneinfo.zip
var zoneData []byte

var zoneFiles = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zoneData), int64(len(zoneData)))
})

// Location answers an IANA time zone (UTC, Europe/Paris) from the embedded database, or
// an error when there is none of that name. "Local" is none: it means something else on
// every machine.
func Location(zone string) (*time.Location, error) {
	if zone == "UTC" {
		return time.UTC, nil
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, fmt.Errorf("the embedded time zone database cannot be read: %w", err)
	}
	f, err := files.Open(zone)
	if err != nil {
		return nil, fmt.Errorf("%q is no IANA time zone", zone)
	}
	defer f.Close() // of an embedded file, opened for reading
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", zone, err)
	}
	return time.LoadLocationFromTZData(zone, data)
}

// knownZone tells whether the IANA database has the zone.
func knownZone(zone string) bool {
	_, err := Location(zone)
	return err == nil
}
