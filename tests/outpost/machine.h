// Another machine for one test: a directory of a user who may be root or not, the two programs in
// it, and streams to a sandbox there as moorage-link has them. At the end nothing of it may be
// left.
#pragma once

#include <sys/types.h>

#include <boost/json/object.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/wire/mux.h"
#include "packs/delta_pack.h"
#include "patience.h"

namespace moorage::test {

using namespace std::chrono_literals;
namespace json = boost::json;

inline constexpr uid_t kRoot = 0;
inline constexpr uid_t kNobody = 65534;

class Machine {
 public:
  explicit Machine(uid_t user);
  ~Machine();
  Machine(Machine&&) = delete;

  const std::string& directory() const { return directory_; }
  std::string sandbox(const std::string& name = "sb_1") const {
    return directory_ + "/sandboxes/" + name;
  }
  uid_t user() const { return user_; }
  std::string program(const std::string& name = "moorage-outpost") const {
    return directory_ + "/bin/0/" + name;
  }
  // A command of the outpost as the user; its standard output. Fails the test if it exits otherwise.
  std::string run(const std::vector<std::string>& arguments, int exit_code = 0) const;
  // The same with input: the second piece is sent once the first has an answer.
  std::string talk(const std::vector<std::string>& arguments, std::string_view first,
                   std::string_view second) const;
  pid_t serve(const std::string& name = "sb_1") const;        // 0: none
  pid_t process_one(const std::string& name = "sb_1") const;  // 0: none
  std::vector<pid_t> processes() const;                       // of its programs

 private:
  uid_t user_;
  std::string directory_;
};

// A pack, in memory, and what one says.
struct PackText {
  PackText();
  PackText& directory(const std::string& path, uint32_t mode = 0755);
  PackText& file(const std::string& path, const std::string& content, uint32_t mode = 0644);
  PackText& link(const std::string& path, const std::string& target);
  PackText& pipe(const std::string& path, mode_t mode);
  PackText& removal(const std::string& path);
  std::string finish();

 private:
  std::string bytes_;
  std::unique_ptr<packs::PackWriter> writer_;
};

struct Changes {
  struct Entry {
    packs::Node node;
    std::string content;
  };
  std::map<std::string, Entry> entries;
  std::vector<std::string> removals;
};
Changes read_pack(const std::string& bytes);

// One stream: `connect`, and the opener's side of it.
class Link {
 public:
  explicit Link(const Machine& machine, uint64_t generation = 1, const std::string& name = "sb_1");
  ~Link();
  Link(Link&&) = delete;

  uint32_t open(const json::object& request);
  void send(uint32_t channel, std::string_view bytes);  // waits for room
  void end(uint32_t channel) { mux_.end(channel), flush(); }
  void reset(uint32_t channel);
  // Everything until the end of the channel; throws the Error of a reset, or unavailable if the
  // stream ended, or deadline_exceeded.
  std::string finish(uint32_t channel, std::chrono::milliseconds deadline = 30s);
  // What came so far, once `enough` says so.
  const std::string& wait(uint32_t channel, const std::function<bool(const std::string&)>& enough,
                          std::chrono::milliseconds deadline = 30s);
  // A request without data, and its answer.
  json::object call(const json::object& request, std::chrono::milliseconds deadline = 30s);
  json::object call_with(const json::object& request, std::string_view bytes);
  json::object hello(uint64_t generation = 1);
  json::object prepare_and_start(const std::string& tree = "");
  std::string sync(uint64_t acknowledged);  // the pack; may be empty

  // A command through the warden, whose journal is in the spool. Returns the answer of Start.
  std::string start(const std::string& tag, const std::string& script,
                    const std::string& user = "user");
  // Its whole output, after its end.
  std::string output(const std::string& tag, std::chrono::milliseconds deadline = 30s);
  // Both; fails the test unless it exits with 0.
  std::string run(const std::string& tag, const std::string& script,
                  const std::string& user = "user");

  void raw(std::string_view bytes);  // into the stream
  bool ended(std::chrono::milliseconds deadline = 10s);
  pid_t connector() const { return connector_; }

 private:
  struct Received {
    std::string bytes;
    bool ended = false;
    std::optional<Error> error;
  };
  void flush();
  bool pump(std::chrono::milliseconds wait);  // false: the stream ended

  Fd socket_;
  pid_t connector_ = -1;
  base::Mux mux_{base::Mux::Side::opener};
  std::map<uint32_t, Received> received_;
  bool over_ = false;
};

// The frames of a journal.
struct JournalText {
  std::string output;
  bool started = false;
  bool ended = false;
  int code = -1;
  bool whole = true;
};
JournalText read_journal(std::string_view bytes);

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds deadline = 10s);

}  // namespace moorage::test
