// One request and its answer, as the handlers of the API see them. No sockets here: handlers are
// plain blocking code on a pool, and hand out a BodySource or BodySink where a body is too long to
// hold. The connection (connection.cc) drives those, one call at a time, so they need no lock of
// their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fair_pool.h"
#include "workspace/context.h"

namespace moorage::daemon {

inline constexpr size_t kPieceBytes = 256 << 10;  // no body is read or written in larger pieces

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kOutputType = "application/vnd.moorage.output";
inline constexpr std::string_view kLinesType = "application/x-ndjson";
inline constexpr std::string_view kBytesType = "application/octet-stream";

struct Request {
  std::string method;
  std::string path;                          // as sent, without the query
  std::vector<std::string> parameters;       // what the {} of the pattern matched, percent-decoded
  std::map<std::string, std::string> query;  // only names that the route allows; decoded
  std::string accept;
  std::string idempotency_key;  // empty: none
  std::string if_match;         // as sent; empty: none
  std::string if_none_match;
  std::string body;  // empty for uploads
  workspace::Caller caller;

  base::Share share() const {  // of the lanes: the user's, and that of what the path names
    return {caller.uid, parameters.empty() ? std::string() : parameters.front()};
  }
  bool accepts(std::string_view type) const { return accept.find(type) != std::string::npos; }
  const std::string& parameter(size_t index) const { return parameters.at(index); }
  std::optional<std::string> query_text(const std::string& name) const;
  std::string required_query(const std::string& name) const;  // invalid_argument if absent
  // "1" and "true" are true, "0", "false" and absent are false; invalid_argument otherwise.
  bool query_flag(const std::string& name) const;
  // A decimal number; invalid_argument if it is none or above max.
  std::optional<uint64_t> query_number(const std::string& name, uint64_t max = INT64_MAX) const;
  // "limit", 1 to 1000 rows; `usual` if it is absent.
  size_t query_limit(size_t usual) const;
  // An id like ws_3, in a parameter that names a row to go on from; 0 if it is absent.
  template <typename Id>
  Id query_id(const std::string& name) const {
    const auto text = query_text(name);
    if (!text) return {};
    if (const auto id = Id::parse(*text)) return *id;
    throw base::Error(base::Code::invalid_argument,
                      "the query parameter '" + name + "' is an id such as " + Id{3}.str(),
                      "take the one that the page before ended with");
  }
};

struct Reply;

// A long answer, read piece by piece on the pool. Throwing before the first byte was sent becomes
// an error answer; later it cuts the connection, so that a client never takes a part for the whole.
class BodySource {
 public:
  enum class Next { more, wait, end };
  struct Step {
    std::string bytes;  // at most about kPieceBytes
    Next next = Next::more;
    std::optional<std::chrono::milliseconds>
        again_after;                   // with `wait`: read again then, woken or not
    std::shared_ptr<Reply> instead{};  // all of the answer, while no byte was sent
  };
  virtual ~BodySource() = default;
  // Before the first read, on the pool. `wake` may be called from any thread, also after the source
  // is gone.
  virtual void start(std::function<void()> wake) { (void)wake; }
  virtual Step read() = 0;
  // Sent after 15 s without anything else; empty: nothing.
  virtual std::string keep_alive() { return {}; }
  // True: it may never end, so a daemon that stops cuts it off and the client comes back.
  virtual bool endless() const { return false; }
};

struct Reply {
  int status = 200;
  std::string content_type{kJsonType};
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::unique_ptr<BodySource> source;    // instead of body
  std::optional<uint64_t> source_bytes;  // known length of source: Content-Length instead of chunks
  std::string subject;                   // id that the log line names: "ws_3"

  static Reply json(std::string body, int status = 200);
  static Reply none();  // 204
};

// A long request body, written piece by piece on the pool. Destroyed without finish(): it was cut.
class BodySink {
 public:
  enum class Taken { all, ask_again };  // ask_again: offer the same piece once more, others first
  virtual ~BodySink() = default;
  virtual Taken write(std::string_view piece) = 0;
  virtual Reply finish() = 0;  // the body came whole
  // True: silence between pieces is fine for as long as the connection stands (standard input).
  virtual bool patient() const { return false; }
};

int status_of(base::Code code);
std::string error_json(const base::Error& error);
Reply error_reply(const base::Error& error);
// The present exception as an Error; whatever is not one of ours is `internal`, and logged.
base::Error current_error();

}  // namespace moorage::daemon
