// One git request over HTTP, carried over ssh. A process of its own, which the daemon starts as the
// owner of the ssh key:
//
//   moorage-egress git-over-ssh SERVICE PROGRAM ARGUMENT...
//
// Standard input is a stream socket to the sandbox's egress, which judged the request. SERVICE is
// git-upload-pack or git-receive-pack; the PROGRAM runs it on the host. The path in the request
// does not count. It goes to the background at once, and ends with the answer, with the socket, or
// when nothing moves for a while.
//
// Over ssh both services talk in one connection: first they list capabilities and refs, then they
// take the request. HTTP has a request for each part, so each gets an ssh of its own; the list is
// dropped where it was not asked for. That suffices for a push, and for a fetch by protocol
// version 2, whose requests are complete in themselves.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "egress/broker/http_message.h"
#include "egress/ssh/git_advertisement.h"

struct z_stream_s;

namespace moorage::egress {

template <bool is_request>
class HttpParser;

class SshBridge {
 public:
  SshBridge(Fd stream, std::string service, std::vector<std::string> command);
  ~SshBridge();
  SshBridge(const SshBridge&) = delete;
  SshBridge& operator=(const SshBridge&) = delete;

  void run();

  static constexpr std::chrono::milliseconds kIdle{300'000};
  static constexpr std::chrono::milliseconds kLast{5'000};  // for the egress to leave first
  static constexpr unsigned kLongestS = 3'600;

 private:
  static constexpr size_t kMost = 256 << 10;  // bytes that wait for a side that does not read
  static constexpr size_t kMostWords = 4 << 10;

  bool is_fetch() const { return service_ == "git-upload-pack"; }
  bool turn();  // false: it is over
  bool read_stream();
  void take_body();
  void inflate(std::string_view bytes);
  void start_ssh();
  void read_ssh();
  void take_from_ssh(std::string_view bytes);
  void read_words();
  void ssh_ended();
  void begin_answer();
  void add_to_answer(std::string_view bytes);
  void end_answer();
  void refuse(const std::string& why);
  bool is_version_missing();
  std::string field(std::string_view name) const;

  Fd stream_;
  const std::string service_;
  const std::vector<std::string> command_;
  std::unique_ptr<HttpParser<true>> request_;
  std::string pending_;  // of the request, not parsed yet
  std::unique_ptr<z_stream_s> inflating_;
  pid_t ssh_ = 0;
  Fd input_, output_, words_;  // of ssh
  std::string to_ssh_;
  bool sent_all_ = false;  // the request's body has ended
  GitAdvertisement advertisement_;
  std::string listed_;  // of the advertisement, before its kind is known
  std::string said_;    // by ssh on its standard error
  std::string answer_;
  bool answers_ = false;  // the head of the answer is written
  bool done_ = false;     // all of the answer is in answer_
  bool shut_ = false;     // and sent
};

// Of the program, as above. Returns only in the process that the daemon waits for.
int run_ssh_bridge(const std::vector<std::string>& arguments);

}  // namespace moorage::egress
