// One request and its answer, as the API's handlers see them. No sockets here: handlers are plain
// blocking code on a pool. They return a BodySource or BodySink for a body too long to hold in
// memory. The connection (connection.cc) calls those one call at a time, so they need no lock.
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
#include "workspace/access/access.h"
#include "workspace/context/context.h"

namespace moorage::daemon {

inline constexpr size_t kPieceBytes = 256 << 10;  // of a body, read or written at once

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kOutputType = "application/vnd.moorage.output";
inline constexpr std::string_view kLinesType = "application/x-ndjson";
inline constexpr std::string_view kBytesType = "application/octet-stream";

struct Request {
  std::string method;
  std::string path;                          // as sent, without the query
  std::vector<std::string> parameters;       // matches of the pattern's {}, percent-decoded
  std::map<std::string, std::string> query;  // only names that the route allows; decoded
  std::string accept;
  std::string idempotency_key;  // may be empty
  std::string if_match;         // as sent; may be empty
  std::string if_none_match;
  std::string body;  // empty for uploads
  workspace::Caller caller;

  base::Share share() const {  // of the lanes: by user and by the path's first id
    return {caller.uid, parameters.empty() ? std::string() : parameters.front()};
  }
  bool accepts(std::string_view type) const { return accept.find(type) != std::string::npos; }
  const std::string& parameter(size_t index) const { return parameters.at(index); }
  std::optional<std::string> query_text(const std::string& name) const;
  std::string required_query(const std::string& name) const;  // invalid_argument if absent
  // "1" and "true" are true, "0", "false" and absent are false; invalid_argument otherwise.
  bool query_flag(const std::string& name) const;
  // A decimal number; invalid_argument if malformed or above max.
  std::optional<uint64_t> query_number(const std::string& name, uint64_t max = INT64_MAX) const;
  // "limit", 1 to 1000 rows; `usual` if it is absent.
  size_t query_limit(size_t usual) const;
  std::vector<std::string> query_list(const std::string& name) const;  // all values, in order
  // An id like ws_3 to continue a list after; 0 if absent.
  template <typename Id>
  Id query_id(const std::string& name) const {
    const auto text = query_text(name);
    if (!text) return {};
    if (const auto id = Id::parse(*text)) return *id;
    throw base::Error(base::Code::invalid_argument,
                      "the query parameter '" + name + "' must be an id such as " + Id{3}.str(),
                      "use the last id of the previous page");
  }
};

struct Reply;

// A long answer, read piece by piece on the pool. An exception before the first byte becomes an
// error answer; a later one cuts the connection, so a client never mistakes a part for the whole.
class BodySource {
 public:
  enum class Next { more, wait, end };
  struct Step {
    std::string bytes;  // at most about kPieceBytes
    Next next = Next::more;
    std::optional<std::chrono::milliseconds>
        again_after;                   // with `wait`: read again after this, woken or not
    std::shared_ptr<Reply> instead{};  // replaces the answer if no byte was sent yet
  };
  virtual ~BodySource() = default;
  // Called on the pool before the first read. `wake` may be called from any thread, even after the
  // source is destroyed.
  virtual void start(std::function<void()> wake) { (void)wake; }
  virtual Step read() = 0;
  // Sent after 15 s of silence; empty: send nothing.
  virtual std::string keep_alive() { return {}; }
  // True: it may never end, so a stopping daemon cuts it off and the client reconnects.
  virtual bool endless() const { return false; }
};

struct Reply {
  int status = 200;
  std::string content_type{kJsonType};
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::unique_ptr<BodySource> source;    // instead of body
  std::optional<uint64_t> source_bytes;  // if known: sends Content-Length, not chunks
  std::string subject;                   // id for the log line: "ws_3"

  static Reply json(std::string body, int status = 200, std::string subject = {});
  static Reply stream(std::unique_ptr<BodySource> source, std::string_view type,
                      std::string subject = {});
  static Reply none(std::string subject = {});  // 204
};

// A long request body, written piece by piece on the pool. Destroyed without finish(): it was cut.
class BodySink {
 public:
  enum class Taken { all, ask_again };  // ask_again: offer the same piece again, after other work
  virtual ~BodySink() = default;
  virtual Taken write(std::string_view piece) = 0;
  virtual Reply finish() = 0;  // the whole body has arrived
  // True: silence between pieces is fine while the connection lasts (standard input).
  virtual bool patient() const { return false; }
};

int status_of(base::Code code);
std::string error_json(const base::Error& error);
Reply error_reply(const base::Error& error);
// The current exception as an Error. Any other exception type becomes `internal` and is logged.
base::Error current_error();

}  // namespace moorage::daemon
