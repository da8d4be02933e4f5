// Writes one reply on a connection: head and body, or head and a source's pieces as they come, the
// head always together with the first bytes (one write for a short answer). The socket is the
// back-pressure: a source is read again only when the last piece has left.
#pragma once

#include <string>
#include <string_view>

#include "daemon/asio.h"
#include "daemon/exchange.h"
#include "daemon/server.h"
#include "daemon/traffic.h"

namespace moorage::daemon {

class ReplyWriter {
 public:
  struct Options {
    Lane lane = Lane::quick;
    base::Share share{};
    bool chunks_allowed = true;  // HTTP/1.1
    bool close = false;          // say that the connection ends
    Answers* answers = nullptr;  // counts the status that goes out
  };
  ReplyWriter(Stream& stream, Lanes& lanes, const Limits& limits)
      : stream_(stream), lanes_(lanes), limits_(limits) {}

  // True: the whole answer went out and the connection can be used again.
  Awaitable<bool> write(Reply reply, Options options);
  // Every byte out, or system_error: the peer is gone, or did not take one byte for
  // Limits::progress.
  Awaitable<void> write_all(std::string_view bytes);
  // The daemon stops: an endless source is cut off.
  void stop();

 private:
  struct Pump;
  Awaitable<bool> write_source(Reply& reply, Options options);
  Awaitable<BodySource::Step> next_step(Pump& pump);
  Awaitable<void> rest(Pump& pump, const BodySource::Step& step);
  Awaitable<void> emit(Pump& pump, std::string_view bytes, bool last);

  Stream& stream_;
  Lanes& lanes_;
  const Limits& limits_;
  std::shared_ptr<Wake> waiting_;
  bool endless_ = false;
  bool stopped_ = false;
};

}  // namespace moorage::daemon
