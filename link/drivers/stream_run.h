// A program there as a Run: two threads of this process carry bytes between the program's stream
// and a socket. Each holds one piece at most, so a slow side makes the other one wait.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "link/driver.h"
#include "link/http/byte_stream.h"

namespace moorage::link {

// A shell's exit code for a program that it does not find: Code::not_found.
inline constexpr int64_t kMissingProgram = 127;

// One thread calls receive() and release(), another one the rest. Every wait ends with the Cancel
// that StreamRun holds.
class ProgramStream {
 public:
  virtual ~ProgramStream() = default;
  // Replaces `output` by what came next. False: the program's output is over, in order. Throws if
  // the stream was cut, or the program failed.
  virtual bool receive(std::string& output) = 0;
  virtual void send(std::string_view bytes) = 0;  // returns once the provider has taken them
  virtual void close_input() = 0;
  virtual void release() {}  // after the last receive(), also after Cancel; does not throw
};

class StreamRun : public Run {
 public:
  StreamRun(std::unique_ptr<Cancel> cancel, std::unique_ptr<ProgramStream> program);
  ~StreamRun() override;

  int stream() const override { return outer_.get(); }
  std::optional<Error> reason() override;

 private:
  void carry_output();
  void carry_input();
  void pass_on(std::string_view output);
  bool wait(short events) const;  // for the inner end; false: cancelled
  void fail(const std::exception& error);
  bool is_over();
  bool becomes_over(std::chrono::milliseconds patience);

  const std::unique_ptr<Cancel> cancel_;
  const std::unique_ptr<ProgramStream> program_;
  Fd outer_;
  Fd inner_;
  std::mutex mutex_;  // guards the next two
  std::optional<Error> reason_;
  bool over_ = false;
  std::condition_variable ended_;  // over_ was set
  std::thread output_;
  std::thread input_;
};

}  // namespace moorage::link
