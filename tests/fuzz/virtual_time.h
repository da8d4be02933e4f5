// Virtual time for a target whose product code connects to servers and waits for them, in one
// thread. A connection leads to OtherEnds, which act whenever the product waits. If there is still
// nothing to wait for, the time is at the end of the wait at once, so the longest deadlines take no
// time, and the same input does the same again. For it the target is linked with --wrap of connect,
// poll, nanosleep and the steady clock.
#pragma once

#include "base/os/fd.h"

namespace moorage::fuzz {

class OtherEnds {
 public:
  virtual ~OtherEnds() = default;
  virtual void connected(base::Fd socket) = 0;
  virtual bool act() = 0;  // false: nothing was to do
};

void set_other_ends(OtherEnds& ends);  // before the first call of the product

}  // namespace moorage::fuzz
