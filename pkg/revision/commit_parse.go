package revision

import (
	"cmp"
	"slices"
	"time"
)

// ParseCommit reads what (*Commit).AppendJSON wrote.
func ParseCommit(data []byte) (*Commit, error) {
	c, commit := newCursor(SchemaCommit, data), new(Commit)
	required := []string{
		"schema", "counts", "epoch", "idDigest", "inputs", "openFrom", "previous", "records", "recordsDigest", "w", "wdata",
	}
	c.object(required, func(name string) bool {
		switch name {
		case "schema":
			c.schema(SchemaCommit)
		case "counts":
			commit.Counts = readCounts(c)
		case "epoch":
			commit.Epoch = c.uint(64)
		case "idDigest":
			commit.IDDigest = c.idDigest()
		case "inputs":
			c.array(func() { commit.Inputs = append(commit.Inputs, readPosition(c)) })
		case "openFrom":
			commit.OpenFrom = c.time()
		case "previous":
			commit.Previous = c.digest()
		case "records":
			commit.Records = c.uint(64)
		case "recordsDigest":
			commit.RecordsDigest = c.digest()
		case "w":
			commit.W = c.time()
		case "wdata":
			commit.Wdata = c.time()
		default:
			return false
		}
		return true
	})
	if err := c.end(); err != nil {
		return nil, err
	}
	return commit, nil
}

func readCounts(c *cursor) []Count {
	var counts []Count
	c.members(func(name string) bool {
		if slices.ContainsFunc(counts, func(other Count) bool { return other.Name == name }) {
			c.fail("member %q stands there twice", name)
		}
		counts = append(counts, Count{Name: name, N: c.uint(64)})
		return true
	})
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return counts
}

// ParsePosition reads what (*InputPosition).AppendJSON wrote.
func ParsePosition(data []byte) (InputPosition, error) {
	c := newCursor("input position", data)
	p := readPosition(c)
	return p, c.end()
}

func readPosition(c *cursor) (p InputPosition) {
	c.object([]string{"created", "index", "outputs", "seq", "stream"}, func(name string) bool {
		switch name {
		case "created":
			p.Created = readNanoseconds(c)
		case "index":
			p.Index = uint32(c.uint(32))
		case "outputs":
			p.Outputs = uint32(c.uint(32))
		case "seq":
			p.Seq = c.uint(64)
		case "stream":
			p.Stream = c.string()
		default:
			return false
		}
		return true
	})
	return p
}

func readNanoseconds(c *cursor) int64 {
	text := c.string()
	if c.err != nil {
		return 0
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		c.fail("%q is no RFC 3339 time", text)
		return 0
	}
	return t.UnixNano()
}

// ParseClaim reads what (*Claim).AppendJSON wrote.
func ParseClaim(data []byte) (*Claim, error) {
	c, claim := newCursor(SchemaClaim, data), new(Claim)
	c.object([]string{"schema", "coreVersion", "epoch", "owner"}, func(name string) bool {
		switch name {
		case "schema":
			c.schema(SchemaClaim)
		case "coreVersion":
			claim.CoreVersion = c.int()
		case "epoch":
			claim.Epoch = c.uint(64)
		case "owner":
			claim.Owner = c.string()
		default:
			return false
		}
		return true
	})
	if err := c.end(); err != nil {
		return nil, err
	}
	return claim, nil
}

// ParseAlias reads what (*Alias).AppendJSON wrote.
func ParseAlias(data []byte) (*Alias, error) {
	c, alias := newCursor(SchemaAlias, data), new(Alias)
	c.object([]string{"schema", "canonical", "epoch", "job"}, func(name string) bool {
		switch name {
		case "schema":
			c.schema(SchemaAlias)
		case "candidate":
			alias.Candidate = c.int()
		case "candidatePercent":
			alias.CandidatePercent = c.int()
		case "canonical":
			alias.Canonical = c.int()
		case "epoch":
			alias.Epoch = c.uint(64)
		case "job":
			alias.Job = c.string()
		case "switching":
			c.object([]string{"to"}, func(name string) bool {
				if name == "to" {
					alias.Switching = c.int()
				}
				return name == "to"
			})
		default:
			return false
		}
		return true
	})
	if err := c.end(); err != nil {
		return nil, err
	}
	return alias, nil
}
