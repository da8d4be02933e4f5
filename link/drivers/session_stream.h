// One program that Daytona runs as a command of a session: output by the WebSocket that follows
// the command's log, input by POST. Neither is safe for bytes, so the program gets `--text` as its
// last argument and speaks base/wire/text_stream.h; its end line tells a whole stream from a cut
// one. The log grows on the machine's disk with the output, so a session that carried much ends
// with an error, after which the caller runs the program again in a new one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire/text_stream.h"
#include "link/drivers/provider_api.h"
#include "link/drivers/stream_run.h"
#include "link/http/websocket.h"

namespace moorage::link {

class SessionStream : public ProgramStream {
 public:
  SessionStream(RunApis toolbox, const std::vector<std::string>& argv, Deadline deadline);

  bool receive(std::string& output) override;
  void send(std::string_view bytes) override;
  void close_input() override;
  void release() override;

 private:
  void start(const std::vector<std::string>& argv, Deadline deadline);
  void follow(Deadline deadline);
  void send_text(const std::string& text);
  Error cut() const;
  std::string command_path() const;

  const RunApis toolbox_;
  const std::string session_;
  std::string command_;
  std::unique_ptr<WebSocket> log_;
  uint64_t log_bytes_ = 0;
  base::TextDecoder decoder_{base::TextDirection::from_program};
  base::TextEncoder encoder_{base::TextDirection::to_program};
};

}  // namespace moorage::link
