// The requests of moorage-link to moorage-outpost: one channel of mux.h each, opened with a JSON
// object whose `what` is one of these. The answer is a JSON object as data, then end; an error is a
// reset. Unless said otherwise link ends its half at once. Names are of docs/architecture.md.
//
// hello     {"protocol":{"oldest","newest"},"generation":G,"give_up":bool,"resumed":bool,
//           "acknowledged":N}. Answer: {"protocol",
//           "release","overlay":"root|user|none","pid_namespace","net_namespace","root_inside",
//           "sudo","limits":["memory","pids","cpus"],"reason","prepared","started",
//           "has_files":bool,"acknowledged":N,"next_was_sent":bool}: limits that hold, once
//           prepared; whether it was ever prepared; the last pack of `sync` that is known here to
//           have arrived, and whether the next one may have. The first request of a stream. Every
//           other stream to this sandbox is closed first, so a link that was killed never competes
//           with its successor. A generation below the newest seen: reset with conflict. give_up:
//           the workspace has gone on elsewhere. From then on only such a hello is accepted, and
//           after it only sync, stop and destroy. resumed: the machine was paused, and may have
//           lost files. Link has packs up to N. Then the answer has "lost":[PATH...], what differs
//           from what link has although nothing ran; not_found: too much. It is repeated in later
//           answers until link has sent it again, and sync is refused until then: conflict.
// has_tree  {"key"}. Answer: {"has":bool,"after":"path","entries":[{"name","size"}...]}.
//           entries: of git objects, the files below the tree that are complete, so that link sends
//           only others. after: the last entry of a partial tree that is complete
//           (MergedApplier::last).
// check_tree {"key"}; link sends the list of its entries (packs/merged/tree_listing.h), then ends.
//           Answer: {"differs":N}: so many entries of a tree that was complete are not as listed, as
//           its machine was paused. Unless N is 0, it does not count as complete any more.
// put_tree  {"key","more":bool,"keep":"/path"}; link sends a pack, then ends. Paths begin with
//           "tree/". Answer: {"ok":true}: the tree is complete. more: the tree may exist, the pack
//           adds to it. keep, if given: afterwards the pack also becomes this new file; nobody
//           waits for it, and it may fail.
// take_tree {"key","file":"/path","digest":SHA-256 in hex,"bytes":N}. The pack is this file, which
//           anybody may have written: not a byte of it is used unless size and digest are right.
//           Answer: {"ok":true}: the tree is complete.
// prepare   {"tree":K|"","objects":K|"","certificates":K|"","plain":bool,
//           "limits":{"memory_bytes","pids","cpu_thousandths"}}; 0: none. Answer: as hello. Again
//           when prepared: the same answer. plain: a machine without namespaces may do (overlay
//           "none"), as it belongs to this sandbox alone; otherwise such a machine is refused:
//           unsupported.
// apply     {"seq":N,"repairs":bool}; link sends a pack, then ends. Answer: {"ok":true}. Paths
//           "tree/..." and "home/...". The same N again answers the same without a change. repairs:
//           it has what the machine lost.
// start     {}. Answer: {"ok":true} once the warden answers.
// http      bytes of one HTTP connection to the warden, both ways; either half may end first.
// journal   {"tag","offset":N,"waits":bool}. Bytes of the spool from N, followed; the end comes
// when the command
//           and its late output are through. link sends u64 little endian: all bytes before this
//           offset are in the journal here. Only those may be punched out: bytes that merely left
//           the spool may be lost with the stream. not_found: no such spool; `waits`: none within
//           half a minute, as the request for its command may be on its way.
// sync      {"acknowledged":N,"waits":bool}. The bytes of pack N+1, or none if nothing changed,
// then
//           end. The changes are those of a walk that began after this request came; a reset
//           instead of the end: it failed. Two at the same time: conflict. waits: it begins only
//           when the end of a command's journal has been read, perhaps before this request but
//           after the last walk began, or when link sends a byte. Then one byte comes first: the
//           walk is after every end that was sent before it. So an end and its files come in one
//           round trip.
// network   {}. Frames of network_relay.h, both ways, while the sandbox runs. A new one takes the
//           place of the former.
// accept    {}. Waits for a connection of the sandbox to one of the places where it listens; then
//           one frame of network_relay.h says which, and the rest are its bytes, both ways.
// stop      {"grace_ms":T}. Answer: {"ok":true} when all commands have ended and the warden is
//           gone.
// destroy   {}. Answer: {"ok":true} when nothing of the sandbox is left.
#pragma once

#include <cstddef>

namespace moorage::base::outpost {

inline constexpr const char* kHello = "hello";
inline constexpr const char* kHasTree = "has_tree";
inline constexpr const char* kCheckTree = "check_tree";
inline constexpr const char* kPutTree = "put_tree";
inline constexpr const char* kTakeTree = "take_tree";
inline constexpr const char* kPrepare = "prepare";
inline constexpr const char* kApply = "apply";
inline constexpr const char* kStart = "start";
inline constexpr const char* kHttp = "http";
inline constexpr const char* kJournal = "journal";
inline constexpr const char* kSync = "sync";
inline constexpr const char* kNetwork = "network";
inline constexpr const char* kAccept = "accept";
inline constexpr const char* kStop = "stop";
inline constexpr const char* kDestroy = "destroy";

inline constexpr size_t kAcknowledgementBytes = 8;  // on a channel `journal`

}  // namespace moorage::base::outpost
