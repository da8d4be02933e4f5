// Between a matched route and its handler: idempotency keys, progress streams, errors to answers,
// one log line a request. Runs on the route's lane; no sockets here.
#pragma once

#include <memory>

#include "daemon/exchange.h"
#include "daemon/keyed_answers.h"
#include "daemon/lanes.h"
#include "daemon/router.h"

namespace moorage::daemon {

class Dispatcher {
 public:
  Dispatcher(Lanes& lanes, KeyedAnswers& answers) : lanes_(lanes), answers_(&answers) {}
  // Of routes that change nothing: no answer is kept.
  explicit Dispatcher(Lanes& lanes) : lanes_(lanes) {}

  // Never throws: what goes wrong is in the reply.
  Reply answer(const Route& route, const Request& request);
  // For uploads: throws base::Error before the body is asked for.
  std::unique_ptr<BodySink> begin_upload(const Route& route, const Request& request);

 private:
  template <typename Verb>
  Reply run_once(const Route& route, const Request& request, const Verb& verb);
  bool keeps(const Route& route, const Request& request) const;

  Lanes& lanes_;
  KeyedAnswers* answers_ = nullptr;
};

}  // namespace moorage::daemon
