// One connection: reads a request, runs it on a lane, writes the reply, and repeats. Lives on the
// loop thread.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <string>

#include "daemon/http/asio.h"
#include "daemon/http/reply_writer.h"
#include "daemon/http/server.h"
#include "workspace/context/context.h"

namespace moorage::daemon {

class Connection {
 public:
  Connection(Stream::socket_type socket, workspace::Caller caller, const Server::Parts& parts);

  // Runs until the peer leaves or breaks a limit. Throws nothing that the caller must handle.
  Awaitable<void> run();
  // The daemon stops: an idle or endless connection ends now, another one after its running
  // request.
  void stop();
  uint32_t uid() const { return caller_.uid; }

 private:
  struct Incoming;  // the parser and the request read so far
  Awaitable<bool> serve_one();
  Awaitable<bool> wait_for_request();
  Awaitable<void> read_head(Incoming& in);
  Awaitable<Reply> answer(Incoming& in);
  Awaitable<std::string> read_json(Incoming& in);
  Awaitable<Reply> receive_upload(Incoming& in);
  Awaitable<std::string> read_piece(Incoming& in);
  Awaitable<void> grant_continue(Incoming& in);

  const Server::Parts& parts_;
  Stream stream_;
  workspace::Caller caller_;
  ReplyWriter writer_;
  beast::flat_buffer buffer_;
  bool interruptible_ = false;  // idle, or reading input that may never come
  bool stopping_ = false;
};

}  // namespace moorage::daemon
