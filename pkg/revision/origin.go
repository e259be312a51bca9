package revision

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// originText answers how an origin is written in JSON; "" for an unknown one, which
// Validate refuses.
func originText(o envelope.Origin) string {
	switch o {
	case envelope.OriginLive:
		return "live"
	case envelope.OriginReplay:
		return "replay"
	case envelope.OriginBackfill:
		return "backfill"
	case envelope.OriginRepair:
		return "repair"
	}
	return ""
}

func parseOrigin(text string) (envelope.Origin, bool) {
	for o := envelope.OriginLive; o <= envelope.OriginRepair; o++ {
		if originText(o) == text {
			return o, true
		}
	}
	return 0, false
}
