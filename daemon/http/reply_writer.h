// Writes one reply on a connection: head and body, or head and a source's pieces as they come. The
// head always goes with the first bytes (one write for a short answer). The socket provides the
// back-pressure: the source is read again only after the last piece was sent.
#pragma once

#include <string>
#include <string_view>

#include "daemon/http/asio.h"
#include "daemon/http/exchange.h"
#include "daemon/http/server.h"

namespace moorage::daemon {

class ReplyWriter {
 public:
  struct Options {
    Lane lane = Lane::quick;
    base::Share share{};
    bool chunks_allowed = true;  // HTTP/1.1
    bool close = false;          // announce the end of the connection
    Answers* answers = nullptr;  // counts the status sent
  };
  ReplyWriter(Stream& stream, WorkerPools& worker_pools, const Limits& limits)
      : stream_(stream), worker_pools_(worker_pools), limits_(limits) {}

  // True: the whole answer was sent and the connection can be used again.
  Awaitable<bool> write(Reply reply, Options options);
  // Sends every byte, or throws system_error: the peer is gone, or took no byte for
  // Limits::progress.
  Awaitable<void> write_all(std::string_view bytes);
  // The daemon stops: cuts off an endless source.
  void stop();

 private:
  struct Pump;
  Awaitable<bool> write_source(Reply& reply, Options options);
  Awaitable<BodySource::Step> next_step(Pump& pump);
  Awaitable<void> rest(Pump& pump, const BodySource::Step& step);
  Awaitable<void> emit(Pump& pump, std::string_view bytes, bool last);

  Stream& stream_;
  WorkerPools& worker_pools_;
  const Limits& limits_;
  std::shared_ptr<Wake> waiting_;
  bool endless_ = false;
  bool stopped_ = false;
};

}  // namespace moorage::daemon
