package egress

// Fields that clients of the proxy may send; none goes upstream.
const (
	headerKey      = "X-Headway-Key"
	headerTenant   = "X-Headway-Tenant"
	headerAgent    = "X-Headway-Agent"
	headerPriority = "X-Headway-Priority"
	headerDeadline = "X-Headway-Deadline"
	headerTimeout  = "X-Headway-Timeout"
)

// Fields that the proxy adds to answers.
const (
	headerWait     = "X-Headway-Wait-Ms"
	headerScale    = "X-Headway-Scale"
	headerPressure = "X-Headway-Pressure"
)
