// One request to moorage-outpost whose answer is a JSON object, perhaps with a body of bytes from a
// descriptor. Owned by whoever waits; destroying it resets the channel.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "link/stream.h"

namespace moorage::link {

class Call : public ChannelUser, public std::enable_shared_from_this<Call> {
 public:
  struct Options {
    boost::json::object request;
    base::Fd body = {};                          // read to its end and sent; a pipe, non-blocking
    std::chrono::milliseconds deadline{60'000};  // without any progress
  };
  // The answer, or the error instead. Called once; may destroy the Call.
  using Done = std::function<void(const boost::json::object& answer, const Error* error)>;
  static std::shared_ptr<Call> start(base::Loop& loop, Stream& stream, Options options, Done done);
  ~Call() override;

  void on_data(std::string_view bytes) override;
  void on_end() override;
  void on_room() override { pump(); }
  void on_over(const Error& reason) override { finish({}, &reason); }

 private:
  Call(base::Loop& loop, Stream& stream, Options options, Done done);
  void pump();
  void finish(const boost::json::object& answer, const Error* error);
  void progress();

  base::Loop& loop_;
  Stream* stream_;
  Options options_;
  Done done_;
  uint32_t channel_ = 0;
  std::string answer_;
  std::optional<base::Watch> body_watch_;
  base::Timer patience_;
};

}  // namespace moorage::link
