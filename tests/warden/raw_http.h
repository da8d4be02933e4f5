// The envd API as used by another client, byte by byte: for streams and for invalid input.
#pragma once

#include <string>
#include <string_view>

#include "base/os/fd.h"

namespace moorage::test {

class RawHttp {
 public:
  explicit RawHttp(const std::string& socket_path);
  void send(std::string_view bytes);                              // a closed peer is not a failure
  bool wait_for(std::string_view text, int timeout_ms = 10'000);  // in everything received so far
  bool wait_for_close(int timeout_ms = 15'000);
  void disconnect() { socket_.reset(); }
  const std::string& received() const { return received_; }

 private:
  bool read_more(int timeout_ms);  // false: closed or nothing came
  base::Fd socket_;
  std::string received_;
  bool closed_ = false;
};

std::string unary(std::string_view method, std::string_view json,
                  std::string_view extra_headers = {});
std::string stream(std::string_view method, std::string_view json,
                   std::string_view extra_headers = {});

}  // namespace moorage::test
