package effector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tidemark-mesh/tidemark/internal/adapters"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// httpReceipt takes a provider's signed word that an effect ran. It is answered 2xx only
// once it stands in the effects journal; whoever owns the partition makes of it what it
// proves. Any process may take it.
func (s *Service) httpReceipt(w http.ResponseWriter, r *http.Request) {
	st := s.stream(r.PathValue("stream"))
	var doc *policy.Adapter
	if st != nil {
		doc = s.documents(st).receiver(r.PathValue("adapter"))
	}
	if doc == nil {
		s.metrics.received("unknown")
		httpx.Fail(w, http.StatusNotFound, httpx.Error{Code: codeNotFound, Message: "no adapter of that name takes receipts for that stream"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, adapters.MaxReceipt))
	if err != nil {
		s.metrics.received("unread")
		httpx.Fail(w, http.StatusRequestEntityTooLarge, httpx.Error{Code: codeBadRequest, Message: fmt.Sprintf("a receipt has at most %d bytes", adapters.MaxReceipt)})
		return
	}
	receipt, digest, err := s.verify(doc, r.Header, body)
	if err != nil {
		s.cfg.Log.Warn().Err(err).Str("adapter", doc.Ref()).Msg("effector: a receipt was refused")
		s.metrics.received("refused")
		httpx.Fail(w, http.StatusUnauthorized, httpx.Error{Code: codeRefused, Message: "the receipt was refused"})
		return
	}
	if err := s.deliver(r.Context(), st, doc, receipt, digest); err != nil {
		s.cfg.Log.Error().Err(err).Str("adapter", doc.Ref()).Msg("effector: a receipt could not be written into the effects journal")
		s.metrics.received("unwritten")
		httpx.Fail(w, http.StatusServiceUnavailable, httpx.Error{Code: codeInternal, Message: "the receipt could not be written; send it again"})
		return
	}
	s.metrics.received("taken")
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) documents(st *stream) *library {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.library
}

// receiver answers the adapter that takes receipts under a name, or a name and version;
// of several versions the highest. nil if there is none.
func (l *library) receiver(name string) (found *policy.Adapter) {
	for ref, doc := range l.adapters {
		switch {
		case doc.ReceiptSecrets == "" || ref != name && doc.Name != name:
		case found == nil || found.Version < doc.Version:
			found = doc
		}
	}
	return found
}

func (s *Service) verify(doc *policy.Adapter, h http.Header, body []byte) (*effect.Receipt, revision.Digest, error) {
	receipts, err := adapters.NewReceipts(doc, s.cfg.Adapters)
	if err != nil {
		return nil, revision.Digest{}, err
	}
	return receipts.Verify(h, body)
}

// deliver writes the receipt into the journal of the key partition that has its effect. A
// receipt does not say which one that is: where no partition owned here has it, it goes
// into the journals of all others, whose owners answer that they have no such effect.
func (s *Service) deliver(ctx context.Context, st *stream, doc *policy.Adapter, receipt *effect.Receipt, digest revision.Digest) error {
	record := effectlog.Evidence{Adapter: doc.Ref(), Digest: digest, Receipt: *receipt}
	data, err := record.Encode()
	if err != nil {
		return err
	}
	var unasked []*unit
	for _, u := range st.units {
		v := u.opened()
		if v == nil {
			unasked = append(unasked, u)
			continue
		}
		r, err := v.effect(receipt.Key)
		if err != nil {
			unasked = append(unasked, u)
			continue
		}
		if r == nil {
			continue
		}
		if e := r.Step.Evidence; r.Outcome == effect.Applied && e != nil && e.Digest == digest {
			return nil // sent again
		}
		return s.append(ctx, u.part, data)
	}
	if len(unasked) == 0 {
		s.cfg.Log.Warn().Str("adapter", doc.Ref()).Stringer("effect", receipt.Key).Msg("effector: a receipt is of no effect that this stream has")
		return nil
	}
	var errs []error
	for _, u := range unasked {
		errs = append(errs, s.append(ctx, u.part, data))
	}
	return errors.Join(errs...)
}

func (s *Service) append(ctx context.Context, p partition, data []byte) error {
	_, err := journal.AppendControl(ctx, s.cfg.Conn.JS, p.journal(), p.subject(), data)
	return err
}
