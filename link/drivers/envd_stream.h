// One program that E2B's envd runs (process.Process/Start: Connect's server stream in JSON, one
// envelope an event). Output is read from the stream; input goes by SendInput, one piece at a time.
// A stream that ends without the program's end event was cut: an error, never a short success.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "link/drivers/provider_api.h"
#include "link/drivers/stream_run.h"

namespace moorage::link {

struct EnvdProgram {
  std::vector<std::string> argv;
  bool input = false;  // false: /dev/null
};

class EnvdStream : public ProgramStream {
 public:
  struct End {
    int64_t exit_code = 0;
    std::string said;  // envd's words, and the end of standard error
  };

  // Returns once the program runs.
  EnvdStream(RunApis envd, const EnvdProgram& program, Deadline deadline);

  // Throws unavailable for another exit code than 0, not_found if the program is missing.
  bool receive(std::string& output) override;
  void send(std::string_view bytes) override;
  void close_input() override;
  void release() override;  // envd lets a program run on when its stream is dropped

  // The same as receive(), but any end of the program is in order; then end() has it.
  bool receive_until_end(std::string& output, Deadline deadline);
  const std::optional<End>& end() const { return end_; }

 private:
  HttpResponse start(const EnvdProgram& program, Deadline deadline);
  void await_start(Deadline deadline);
  bool next_message(std::string& message, Deadline deadline);
  void take_event(const std::string& message, std::string& output);
  void unary(const std::string& method, const std::string& what, const std::string& more);

  const RunApis envd_;
  std::unique_ptr<AnswerReader> reader_;
  std::string held_;  // arrived, not a whole envelope
  int64_t pid_ = 0;
  std::optional<End> end_;
  std::string errors_;  // the end of standard error
};

}  // namespace moorage::link
