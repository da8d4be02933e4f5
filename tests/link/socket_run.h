// A program on another machine that is only a socket.
#pragma once

#include <optional>
#include <utility>

#include "base/os/fd.h"
#include "link/driver.h"

namespace moorage::test {

class SocketRun : public link::Run {
 public:
  explicit SocketRun(base::Fd socket) : socket_(std::move(socket)) {}
  int stream() const override { return socket_.get(); }
  std::optional<Error> reason() override { return std::nullopt; }

 private:
  base::Fd socket_;
};

}  // namespace moorage::test
