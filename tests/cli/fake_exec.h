// One command of a scripted daemon: it has output, accepts or ignores standard input, and records
// signals. Streams break where the test wants.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/wire/output_stream.h"
#include "scripted_server.h"

namespace moorage::test {

class FakeExec {
 public:
  // Handles every route of ex_7 in workspace "auth"; false: not one of them.
  bool handle(Call& call);

  void write(base::RecordKind kind, std::string bytes);  // more output
  void finish(const std::string& end_fields);            // R"("state":"exited","exit_code":0)"
  // Breaks the stream after so many bytes, in any attempt.
  void break_streams_after(std::vector<size_t> bytes);

  bool takes_stdin = true;             // false: a PUT is never answered
  std::vector<size_t> stdin_breaks;    // PUTs, by number from 0, whose answer is lost
  std::optional<uint64_t> stdin_read;  // what the command has read; absent: not said
  size_t stdin_lost_part = 0;          // bytes at the end of a broken PUT that did not arrive
  int lose_first_posts = 0;            // answers of POST execs that are lost
  std::function<void(const std::string& signal)> on_signal;  // "cancel" for cancel

  std::string stdin_bytes() const;
  bool stdin_closed() const;
  std::string posted_body() const;
  std::vector<std::string> post_keys() const;
  std::vector<std::string> signals() const;
  size_t starts() const { return starts_; }

 private:
  struct Piece {
    base::RecordKind kind;
    std::string bytes;
  };
  void post(Call& call);
  void stream(Call& call, uint64_t offset, bool follow);
  void put_stdin(Call& call);
  std::string record() const;  // JSON; mutex_ is held
  std::string records_from(uint64_t offset) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> output_;
  std::string end_;
  std::vector<size_t> breaks_;
  std::string stdin_;
  bool stdin_closed_ = false;
  size_t puts_ = 0;
  std::string posted_body_;
  std::vector<std::string> post_keys_;
  std::vector<std::string> signals_;
  size_t starts_ = 0;
};

}  // namespace moorage::test
