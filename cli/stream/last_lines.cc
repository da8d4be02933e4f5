#include "cli/stream/last_lines.h"

#include <algorithm>
#include <deque>

#include "cli/stream/output_follower.h"

namespace moorage::cli {
namespace {

using base::RecordKind;

constexpr uint64_t kFirstWindow = 64 << 10;
constexpr uint64_t kLineBytes = 128;  // a guess
constexpr uint64_t kWiden = 8;

// The offsets of the last lines that begin in the output after `from`, and of its end.
struct Lines {
  std::deque<uint64_t> starts;
  uint64_t end = 0;
};

Lines lines_after(Context& context, const LastLines& wanted, uint64_t from) {
  Lines found;
  bool at_start = from == 0;  // elsewhere we are inside a line
  FollowPlan plan;
  plan.exec = wanted.exec;
  plan.offset = from;
  plan.follow = false;
  OutputFollower* reading = nullptr;
  plan.on_output = [&](RecordKind kind, std::string_view bytes) {
    if (!(kind == RecordKind::standard_error ? wanted.of_stderr : wanted.of_stdout)) return;
    const uint64_t offset = reading->next_offset() - bytes.size();
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (at_start) found.starts.push_back(offset + at);
      if (found.starts.size() > wanted.count) found.starts.pop_front();
      at = std::min(bytes.find('\n', at), bytes.size());
      at_start = at < bytes.size();
    }
  };
  OutputFollower follower(context.socket, std::move(plan));
  reading = &follower;
  follower.run();
  found.end = follower.next_offset();
  return found;
}

}  // namespace

uint64_t offset_of(Context& context, const LastLines& wanted) {
  const Json exec = Json::parse(context.api().get(context.exec_path(wanted.exec)));
  const auto total = static_cast<uint64_t>(exec.number("output_bytes"));
  const uint64_t guess = std::min(wanted.count, total) * kLineBytes;
  for (uint64_t window = std::max(kFirstWindow, guess);; window *= kWiden) {
    const uint64_t from = total > window ? total - window : 0;
    const Lines lines = lines_after(context, wanted, from);
    if (from > 0 && lines.starts.size() < wanted.count) continue;
    return lines.starts.empty() ? lines.end : lines.starts.front();
  }
}

}  // namespace moorage::cli
