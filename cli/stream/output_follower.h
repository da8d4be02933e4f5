// Reads the output of one command to its end, every byte once, over as many connections as needed.
// Invariant: next_offset_ is the offset of the first byte not handed out yet; a new connection
// starts exactly there. This also starts the command, because the answer to the POST is the first
// stream: a POST whose answer was lost is repeated with the same key.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/wire/output_stream.h"
#include "cli/client/http_client.h"
#include "cli/client/json.h"

namespace moorage::cli {

struct FollowTarget {
  std::string exec;  // this one; empty: start one with post_target and post_body
  std::string post_target;
  std::string post_body;
  uint64_t offset = 0;  // of the output
  bool follow = true;   // false: stop at the current end
  bool late = false;    // also output after the command's end
};

struct FollowPlan : FollowTarget {
  std::function<void(const std::string& exec)> on_started;  // once, before any output
  std::function<void(base::RecordKind kind, std::string_view bytes)> on_output;
  std::function<void(const std::string& text)> on_notice;  // for the user; rare
};

class OutputFollower {
 public:
  OutputFollower(const std::string& socket_path, FollowPlan plan);

  // Returns the exec's final record; a null Json when follow is false and it still runs. Throws
  // when the daemon refuses or stays away too long, and after abandon().
  Json run();
  void abandon();  // from any thread
  // Whether on_notice got a text that contains this one.
  bool has_noted(const std::string& text) const;
  // After a call of on_output, the end of those bytes.
  uint64_t next_offset() const { return next_offset_; }

 private:
  enum class Attempt { ended, dropped };
  Attempt attempt();
  HttpRequest next_request() const;
  void take_header(const HttpResponse& response);
  void take_record(base::RecordKind kind, std::string_view payload);
  void take_position(const Json& json);
  void take_output(base::RecordKind kind, std::string_view payload);
  void note_trouble(const Error& error);
  void note_once(const std::string& notice);

  FollowPlan plan_;
  const std::string idempotency_key_;
  HttpConnection connection_;
  std::atomic<bool> abandoned_{false};
  uint64_t next_offset_;
  uint64_t skip_bytes_ = 0;  // on this connection: already handed out
  bool reached_ = false;     // the daemon answered at least once
  bool heard_ = false;       // this connection delivered a record
  bool told_trouble_ = false;
  std::set<std::string> told_notices_;  // a new connection repeats them
  bool answered_ = false;               // the last failure was an answer, not a lost connection
  bool ended_ = false;
  Json end_;
};

}  // namespace moorage::cli
