package main

// The drafts of `create`. Words in capitals are filled in.

const streamDraft = `# yaml-language-server: $schema=businessStream.v1.json
# A business stream: one named flow of events. Check with "tidemark lint FILE", make it
# real with "tidemark apply -f FILE".
apiVersion: tidemark/v1
kind: BusinessStream
name: STREAM
partitions: KEYPARTS                # key partitions: how far work can be spread; fixed for life
key: [KEY]                          # JSON Pointers into the event; several are joined by /
values:                             # what aggregates may use: decimal (exact), int or string
  amount: {path: /order/amount, type: decimal, scale: 2}
eventTime:                          # when it happened. Versioned: a change is a new name, such as @2
  occurred_at@1: {path: TIME, format: FORMAT}
bounds:                             # an event time outside of these is quarantined
  maxFuture: 5m                     # ahead of its arrival
  notBefore: 2020-01-01T00:00:00Z
schemaGeneration: 1                 # raise it together with new values or extractors
retractions: true                   # events may be withdrawn (op: retract)
maxEventBytes: 256KiB
`

const policyDraft = `# yaml-language-server: $schema=streamTimePolicy.v1.json
# A generation of a job: how time and windows are computed. It never changes once it is
# applied; write a change under a higher generation.
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: STREAM
job: JOB
generation: 1
sources: [{name: SOURCE, partitions: SOURCEPARTS}]   # whose events count, and who moves the watermark
timestampExtractor: occurred_at@1
watermark: {boundedOutOfOrderness: 5m}   # how far out of order events usually come
idle: {after: 15m, allIdle: hold}   # a source partition quiet for so long no longer holds the
                                    # watermark; all quiet: hold it, or advance with time
window: {tumbling: WINDOW}          # [start, end), aligned to UTC; add offset: 15m to shift
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h                # how late an event may come and still correct its window
late: rebuild                       # what becomes of later ones: rebuild, manual or deadLetter
retention: {ids: 48h, raw: unlimited}   # ids: how long a repetition is recognised; at least
                                    # allowedLateness and a window
correctionMode: UPSERT_REVISION
`

const adapterDraft = `# yaml-language-server: $schema=adapter.v1.json
# An adapter: the way to a provider, and what the provider promises. A version never
# changes once it is applied; write a change under a higher version. Leave out what the
# provider does not promise: that only means that more is asked of a person.
apiVersion: tidemark/v1
kind: Adapter
name: rewards-api
version: 1
type: http                          # http, nats, or log to try things out
url: https://rewards.example/v1/issue
idempotency:                        # the provider executes a key once, for as long as it knows it
  header: Idempotency-Key           # carries our effectKey
  retention: 24h                    # never longer than the provider says
  onBodyMismatch: error             # a known key with another body: error, replay or execute
evidence:                           # where answers say what ran: JSON Pointers
  key: /ref                         # our effectKey
  amount: /points                   # the member of the payload that must come back
  subject: /account
query:                              # how to find an execution by our own key
  url: 'https://rewards.example/v1/by-ref/{effectKey}'
  absence: unproven                 # authoritative: finding nothing proves that nothing ran
timeout: 20s                        # from the first byte to the end of the answer
sendWithin: 5s                      # no first byte later than this after the commit
rate: {perSecond: 10, concurrency: 4}
reject: [{status: 422, code: account_closed}]   # answers before execution; anything unlisted is unknown
`

const effectDraft = `# yaml-language-server: $schema=effectPolicy.v1.json
# An effect policy: which outside action a window's result calls for, at most once. A
# version never changes once it is applied; subject, job and effectType never change at all.
apiVersion: tidemark/v1
kind: EffectPolicy
name: reward
version: 1
stream: STREAM
job: JOB
effectType: issue-reward
subject: key                        # whose action: CEL over key, window and constants only
when: value.revenue >= decimal("10000")   # CEL over key, window and the job's results
requireProvenance: any              # DATA: not before data itself moved the watermark past the window
payload:                            # members of the request, each computed by CEL; effectKey is added
  account: key
  month: window.start.month()
  points: int(value.revenue) / 100
adapter: rewards-api@1
airlock:                            # what a person must approve first
  amountAbove: {field: points, limit: 100000}
  firstOfGeneration: 10             # the first effects under a new generation of the job
corrections: manual                 # when a late event contradicts an effect that ran
`

const caseDraft = `# yaml-language-server: $schema=testCase.v1.json
# A test of documents: run it with "tidemark test FILE". Nothing waits; the case drives time.
apiVersion: tidemark/v1
kind: TestCase
name: a late order corrects its hour
# Usually the documents stand in files beside this one:
#   documents: [orders.yaml]
inline: |
  DOCUMENTS
now: 2026-11-30T10:30:00Z           # when the first event arrives
steps:
  - send:
      source: shop
      partition: 0
      events:                       # a map is the event's JSON; text is taken byte by byte
        - {id: o-1, order: {region: eu-west, occurred_at: "2026-11-30T10:15:00Z", amount: "25.00"}}
        - {id: o-2, order: {region: eu-west, occurred_at: "2026-11-30T10:15:00Z", amount: "2.505"}}
  - wait: 35m                       # time passes and nothing arrives
  - send:
      source: shop
      events:
        - {id: o-3, order: {region: eu-west, occurred_at: "2026-11-30T11:05:00Z", amount: "8.00"}}
  - expect:                         # what must hold at this point
      watermark: 2026-11-30T11:00:00Z
      windows: [{key: eu-west, revision: 1, value: {revenue: "25.00", orders: 1}}]
  - send:
      source: shop
      events:
        - {id: o-4, order: {region: eu-west, occurred_at: "2026-11-30T10:59:59Z", amount: "1.50"}}
expect:                             # lists are compared whole; of their items what is written
  windows: [{key: eu-west, revision: 2, state: CORRECTED, value: {revenue: "26.50", orders: 2}}]
  quarantine: [{id: o-2, reason: value-precision}]
`
