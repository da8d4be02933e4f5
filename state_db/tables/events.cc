// The event log of a store: reading it, and events other than state changes.
#include "state_db/event.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {

std::string_view event_text(std::string_view text) {
  constexpr size_t kMaxBytes = 4096;
  if (text.size() <= kMaxBytes) return text;
  size_t end = kMaxBytes;
  // A byte 10xxxxxx continues a character: cut before the whole character.
  while (end > kMaxBytes - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

int64_t Store::add_event(std::string_view kind, const Subject& subject, std::string_view text) {
  return transaction([&] {
    new_seq_ = insert(
        *this,
        "INSERT INTO events (wall_ms, kind, from_state, to_state, text, repository, workspace, "
        "sandbox, exec, snapshot)",
        clock_->wall_ms(), kind, "", "", event_text(text), subject.repository, subject.workspace,
        subject.sandbox, subject.exec, subject.snapshot);
    return new_seq_;
  });
}

std::vector<Event> Store::events(int64_t since_seq, size_t limit, base::WorkspaceId only) {
  constexpr std::string_view kColumns =
      "SELECT seq, wall_ms, kind, from_state, to_state, text, repository, workspace, sandbox, "
      "exec, snapshot FROM events ";
  std::string sql(kColumns);
  sql += only ? "WHERE workspace = ? AND seq > ? ORDER BY seq LIMIT ?"
              : "WHERE seq > ? ORDER BY seq LIMIT ?";
  Statement query = prepare(sql);
  if (only) query.bind(only);
  query.bind(since_seq, limit);
  return query.all<Event>([](Statement& row, Event& event) {
    Subject& about = event.subject;
    row.read(event.seq, event.wall_ms, event.kind, event.from, event.to, event.text,
             about.repository, about.workspace, about.sandbox, about.exec, about.snapshot);
  });
}

int64_t Store::last_event() {
  return prepare("SELECT max(seq) FROM events").value<int64_t>().value();
}

int64_t Store::trim_events(int64_t keep) {
  return write(*this,
               "DELETE FROM events WHERE seq <= "
               "(SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?)",
               keep);
}

}  // namespace moorage::state_db
