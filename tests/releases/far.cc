// A release that breaks the rules: it shares no protocol with this one. Linked instead of
// base/protocol.cc.
#include "base/protocol.h"

namespace moorage::base {

const Protocols kProtocols{1001, 1001};
const char* const kRelease = "far";

}  // namespace moorage::base
